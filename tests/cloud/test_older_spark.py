"""Tests of this folder under the older line of Spark, with Iceberg's sink, which that line alone has."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cloud.conftest import HAS_ICEBERG
from tests.support import older_spark
from tests.support.iceberg import CATALOG_VARIABLE, HADOOP, JDBC, JDBC_ON_S3, REST

HERE = Path(__file__).parent


@pytest.mark.heavy
@pytest.mark.spark
@pytest.mark.guarantee(5)
@pytest.mark.skipif(HAS_ICEBERG, reason="starts the others in this line of Spark")
@pytest.mark.parametrize(
    ("tests", "kind"),
    [
        (("iceberg",), HADOOP),
        (("iceberg",), JDBC),
        (("iceberg",), REST),
        (("iceberg",), JDBC_ON_S3),
        (("test_sinks.py", "-k", "iceberg"), HADOOP),
        (("test_processing.py", "-k", "iceberg"), HADOOP),
    ],
)
def test_under_the_older_line_of_spark(tests: tuple[str, ...], kind: str, tmp_path: Path) -> None:
    path = older_spark.home().parent
    words = ("-m", "pytest", "--quiet", f"--basetemp={tmp_path / 'own'}", str(HERE / tests[0]), *tests[1:])
    environment = {**os.environ, "PYTHONPATH": str(path), "SPARK_HOME": str(path / "pyspark")}
    environment[CATALOG_VARIABLE] = kind
    done = subprocess.run((sys.executable, *words), check=False, env=environment, stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stdout[-5000:]
    assert " passed" in done.stdout
