"""Runs in the line of Spark that has Iceberg alone."""

from tests.cloud.conftest import HAS_ICEBERG

collect_ignore_glob = [] if HAS_ICEBERG else ["test_*.py"]
