"""The packages that spark-submit gets."""

from pathlib import Path

from simulators.services import spark


def test_the_archive_is_the_same_for_the_same_sources(tmp_path: Path) -> None:
    first = spark.pack(("contract",), tmp_path / "first.zip").read_bytes()
    assert spark.pack(("contract",), tmp_path / "second.zip").read_bytes() == first
