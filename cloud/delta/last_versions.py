"""Checks that the last versions of a table on a local disk are whole.

Neither Delta nor Spark flushes what it writes. The job flushes all of it before its receipts. So a power cut may take a
part of the versions since then: of their entries in the log, of the files that they add, or of the log's checkpoints.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from cloud.delta.history import Version
from cloud.errors import StopError
from cloud.runtime import disk, jvm


def check(spark: SparkSession, path: str) -> None:
    """Raise StopError where the job's last commit, or a later version, is not whole; elsewhere than on a disk, pass.

    The same holds for a checkpoint of the log with any of these versions.
    """
    for folder in map(Path, disk.local_folders(spark, [path])):
        first = ""
        for entry, defect in _defects(spark, folder):
            first = entry.stem
            if defect:
                version = int(entry.stem)
                raise StopError(
                    f"table {path}: version {version} is not whole: {defect}. A power cut before its flush does that, "
                    f"and then no receipt covers it. If the power was cut, remove {entry} and, where they exist, "
                    f"{entry.with_suffix('.crc').name}, .{entry.name}.crc, {entry.stem}.checkpoint* and "
                    "_last_checkpoint beside it, and start again: the records are read again. Otherwise check the "
                    "disk first"
                )
        for file in sorted((folder / "_delta_log").glob("*.checkpoint*.parquet")):
            if file.stem >= first and (defect := _unreadable_checkpoint(spark, file)):
                raise StopError(
                    f"table {path}: the checkpoint of its log, {file}, is not whole: {defect}. A power cut before its "
                    f"flush does that. If the power was cut, remove {file.name.partition('.')[0]}.checkpoint* and "
                    "_last_checkpoint in that folder, and start again: the table is then read from the log. Otherwise "
                    "check the disk first"
                )


def _defects(spark: SparkSession, folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield the entries from the newest to the job's last commit, each with what is wrong with it."""
    removed: set[str] = set()
    entries = (file for file in (folder / "_delta_log").glob("*.json") if file.stem.isdigit())
    for entry in sorted(entries, reverse=True):
        try:
            if not (text := entry.read_bytes()).strip():
                raise ValueError("it is empty")
            version = Version.read(text.decode())
        except ValueError as error:
            yield entry, f"its entry in the log cannot be read: {error}"
            return
        files = {name: file for name, file in version.added.items() if name not in removed}
        is_own = version.commit is not None
        defect = _missing_lines(version, is_own=is_own) or _missing_bytes(folder, files)
        yield entry, defect or (_unreadable(spark, folder, files) if is_own else "")
        if is_own:
            return
        removed |= version.removed.keys()


def _missing_lines(version: Version, *, is_own: bool) -> str:
    """Compare the entry's files with what its first line states; a write without rows states files that it has not."""
    metrics = version.info.get("operationMetrics") or {}
    name, found = ("numOutputRows", _rows(version.added)) if is_own else ("numAddedFiles", len(version.added))
    stated = int(metrics.get(name, 0))
    lacks = found is not None and found < stated
    return f"its entry in the log lacks lines: {name} is {stated}, and it has {found}" if lacks else ""


def _missing_bytes(folder: Path, files: Mapping[str, Mapping[str, Any]]) -> str:
    for name, file in files.items():
        place, size = _place(folder, name), int(file["size"])
        if not place.exists():
            return f"{name} is missing"
        if (found := place.stat().st_size) != size:
            return f"{name} has {found} of {size} bytes"
    return ""


def _unreadable(spark: SparkSession, folder: Path, files: Mapping[str, Mapping[str, Any]]) -> str:
    """Read all values of the files, whose pages have checksums."""
    if not files:
        return ""
    rows = _rows(files)
    try:
        found = _read_all(spark, *(_place(folder, name) for name in files)).count()
    except jvm.FAILURES as error:
        return f"its rows cannot be read: {str(error).splitlines()[0]}"
    return "" if rows in (None, found) else f"{found} of {rows} rows can be read"


def _unreadable_checkpoint(spark: SparkSession, file: Path) -> str:
    """Read all values; Delta passes over an empty file, and over no other one."""
    if not file.stat().st_size:
        return ""
    try:
        _read_all(spark, file)
    except jvm.FAILURES as error:
        return str(error).splitlines()[0]
    return ""


def _read_all(spark: SparkSession, *files: Path) -> DataFrame:
    paths = (jvm.literal(f"file://{file}") for file in files)
    frame = spark.read.option("parquet.page.verify-checksum.enabled", "true").parquet(*paths)
    # A count alone would read no column, and no hash takes columns of every name and type.
    frame.write.format("noop").mode("overwrite").save()
    return frame


def _place(folder: Path, name: str) -> Path:
    """Return the file of an entry's path; in a shallow clone that is the URI of a file in the cloned table."""
    return folder / name.removeprefix("file:").replace("///", "/", 1) if name.startswith("file:") else folder / name


def _rows(files: Mapping[str, Mapping[str, Any]]) -> int | None:
    """Return the number of rows in files; None where the entry lacks the number of one."""
    counts = [json.loads(file.get("stats") or "{}").get("numRecords") for file in files.values()]
    return None if None in counts else sum(counts)
