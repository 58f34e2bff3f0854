"""A commit that a power cut has torn is found before its offsets are taken for those of the table."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cloud.delta import last_versions
from cloud.delta.sink import TABLE
from cloud.delta.table import DeltaTable
from cloud.errors import StopError
from cloud.runtime import jvm
from tests.cloud import made_rows
from tests.cloud.tables import COMMIT, append_as_another

pytestmark = pytest.mark.spark
SECTOR_BYTES = 512


@pytest.fixture(scope="module")
def written(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a table with two commits of the job, each with rows of two days."""
    folder = tmp_path_factory.mktemp("torn") / "events"
    table = DeltaTable(spark, str(folder), TABLE)
    made = made_rows.day()
    for batch, rows in enumerate((made[:20], made[-20:])):
        table.append(spark.createDataFrame(rows, TABLE.schema), replace(COMMIT, batch=batch, ends={0: 20 * batch + 20}))
    return folder


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "events [1]"
    shutil.copytree(written, copy)
    return copy


def entry_of(folder: Path) -> Path:
    return max((folder / "_delta_log").glob("*.json"))


def file_of(folder: Path) -> Path:
    """Return a file that the last version adds, without Hadoop's checksums, which are in a file of their own."""
    lines = map(json.loads, entry_of(folder).read_text().splitlines())
    file = folder / str(next(line["add"]["path"] for line in lines if "add" in line))
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    return file


def cut_entry(folder: Path, length: int) -> None:
    entry = entry_of(folder)
    entry.with_name(f".{entry.name}.crc").unlink(missing_ok=True)
    entry.write_bytes(entry.read_bytes()[:length])


def half_an_entry(folder: Path) -> None:
    cut_entry(folder, entry_of(folder).stat().st_size // 2)


def no_entry(folder: Path) -> None:
    cut_entry(folder, 0)


def entry_without_its_files(folder: Path) -> None:
    cut_entry(folder, entry_of(folder).read_bytes().index(b"\n") + 1)


def entry_of_zeros(folder: Path) -> None:
    entry_of(folder).write_bytes(bytes(entry_of(folder).stat().st_size))


def no_file(folder: Path) -> None:
    file_of(folder).unlink()


def empty_file(folder: Path) -> None:
    file_of(folder).write_bytes(b"")


def half_a_file(folder: Path) -> None:
    file = file_of(folder)
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def lost_sector(folder: Path) -> None:
    file = file_of(folder)
    whole = file.read_bytes()
    file.write_bytes(whole[:SECTOR_BYTES] + bytes(SECTOR_BYTES) + whole[2 * SECTOR_BYTES :])


@pytest.mark.guarantee(5)
def test_a_shallow_clone_is_whole_with_the_files_of_the_table_that_it_copies(
    spark: SparkSession, written: Path, tmp_path: Path
) -> None:
    clone = tmp_path / "a clone"
    spark.sql(f"CREATE TABLE delta.`{clone}` SHALLOW CLONE delta.`{written}`")
    last_versions.check(spark, str(clone))
    file = next(written.rglob("*.parquet"))
    shutil.move(file, tmp_path)
    with pytest.raises(StopError, match="is missing"):
        last_versions.check(spark, str(clone))
    shutil.move(tmp_path / file.name, file)


def last_offset(spark: SparkSession, folder: Path) -> int | None:
    commit = DeltaTable(spark, str(folder), TABLE).last_commit()
    return None if commit is None else commit.ends[0]


@pytest.mark.guarantee(5)
@pytest.mark.parametrize(
    ("tear", "message"),
    [
        (half_an_entry, "its entry in the log cannot be read"),
        (no_entry, "it is empty"),
        (entry_without_its_files, "lacks lines: numOutputRows is 20, and it has 0"),
        (entry_of_zeros, "its entry in the log cannot be read"),
        (no_file, "is missing"),
        (empty_file, "has 0 of"),
        (half_a_file, "has .* of .* bytes"),
        (lost_sector, "its rows cannot be read"),
    ],
)
def test_a_torn_version_is_found_and_without_it_the_table_is_that_of_the_commit_before(
    spark: SparkSession, folder: Path, tear: Callable[[Path], None], message: str
) -> None:
    tear(folder)
    with pytest.raises(StopError, match=f"version 2 is not whole: .*{message}") as stopped:
        DeltaTable(spark, str(folder), TABLE)
    entry = entry_of(folder)
    assert f"remove {entry} and" in str(stopped.value)
    for name in (entry.name, entry.with_suffix(".crc").name, f".{entry.name}.crc"):
        entry.with_name(name).unlink(missing_ok=True)
    assert last_offset(spark, folder) == 20
    assert DeltaTable(spark, str(folder), TABLE).rows().count() == 20


def test_without_a_torn_version_and_its_checkpoint_the_table_is_that_of_the_commit_before(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    jvm.delta_log(spark, str(folder)).checkpoint()
    folder = Path(shutil.copytree(folder, tmp_path / "as another process finds it"))
    half_a_file(folder)
    with pytest.raises(StopError, match=rf"{2:020}\.checkpoint\* and _last_checkpoint beside it"):
        DeltaTable(spark, str(folder), TABLE)
    log = folder / "_delta_log"
    for file in (*log.glob(f"*{2:020}.*"), log / "_last_checkpoint"):
        file.unlink()
    assert last_offset(spark, folder) == 20
    assert DeltaTable(spark, str(folder), TABLE).rows().count() == 20


def checkpoint_of(folder: Path) -> Path:
    """Return the checkpoint, without Hadoop's checksums, which are in a file of their own."""
    file = next((folder / "_delta_log").glob("*.checkpoint.parquet"))
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    return file


def half_a_checkpoint(folder: Path) -> None:
    file = checkpoint_of(folder)
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def checkpoint_of_zeros(folder: Path) -> None:
    checkpoint_of(folder).write_bytes(bytes(checkpoint_of(folder).stat().st_size))


def checkpoint_without_a_sector(folder: Path) -> None:
    file = checkpoint_of(folder)
    whole = file.read_bytes()
    file.write_bytes(whole[:SECTOR_BYTES] + bytes(SECTOR_BYTES) + whole[2 * SECTOR_BYTES :])


@pytest.mark.guarantee(5)
@pytest.mark.parametrize("tear", [half_a_checkpoint, checkpoint_of_zeros, checkpoint_without_a_sector])
def test_a_torn_checkpoint_of_the_log_is_found_and_without_it_the_table_is_whole(
    spark: SparkSession, folder: Path, tmp_path: Path, tear: Callable[[Path], None]
) -> None:
    jvm.delta_log(spark, str(folder)).checkpoint()
    folder = Path(shutil.copytree(folder, tmp_path / "as another process finds it"))
    DeltaTable(spark, str(folder), TABLE)  # whole
    tear(folder)
    folder = Path(shutil.copytree(folder, tmp_path / "as the next process finds it"))
    with pytest.raises(StopError, match=rf"is not whole: .* remove {2:020}\.checkpoint\* and _last_checkpoint in"):
        DeltaTable(spark, str(folder), TABLE)
    log = folder / "_delta_log"
    for file in (*log.glob(f"{2:020}.checkpoint*"), log / "_last_checkpoint"):
        file.unlink()
    assert last_offset(spark, folder) == 40
    assert DeltaTable(spark, str(folder), TABLE).rows().count() == 40


@pytest.mark.parametrize(
    ("name", "length"),
    [(f"{2:020}.checkpoint.parquet", 0), ("_last_checkpoint", 0), ("_last_checkpoint", 100), (f"{2:020}.crc", 100)],
)
def test_what_delta_can_do_without_is_no_defect(
    spark: SparkSession, folder: Path, tmp_path: Path, name: str, length: int
) -> None:
    jvm.delta_log(spark, str(folder)).checkpoint()
    log = Path(shutil.copytree(folder, tmp_path / "as another process finds it")) / "_delta_log"
    (log / f".{name}.crc").unlink()
    (log / name).write_bytes((log / name).read_bytes()[:length])
    assert last_offset(spark, log.parent) == 40
    assert DeltaTable(spark, str(log.parent), TABLE).rows().count() == 40


def test_what_other_writers_leave_in_the_log_is_no_defect(spark: SparkSession, folder: Path) -> None:
    log = folder / "_delta_log"
    (log / f"{3:020}.json").write_text('{"txn":{"appId":"another","version":1}}\n')  # commitInfo is optional
    (log / f"{3:020}.checkpoint.2f1c6f8e.json").write_text('{"checkpointMetadata":{"version":3}}\n')
    (log / f"{1:020}.{2:020}.compacted.json").write_text("")
    last_versions.check(spark, str(folder))


@pytest.mark.guarantee(5)
def test_a_whole_table_is_whole_whatever_others_have_written(spark: SparkSession, folder: Path) -> None:
    last_versions.check(spark, str(folder))
    append_as_another(spark, folder)
    last_versions.check(spark, str(folder))
    compacted = set(folder.rglob("part-*.parquet"))
    assert DeltaTable(spark, str(folder), TABLE).compact()[0] > 0
    for file in compacted:  # as VACUUM does later
        file.unlink()
    last_versions.check(spark, str(folder))
