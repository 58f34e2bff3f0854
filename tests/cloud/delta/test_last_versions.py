"""A commit that a power cut has torn is found before its offsets are taken for those of the table."""

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


def without_checksums(file: Path) -> Path:
    """Remove Hadoop's checksums, which are in a file of their own."""
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    return file


def entry_of(folder: Path) -> Path:
    return without_checksums(max((folder / "_delta_log").glob("*.json")))


def file_of(folder: Path) -> Path:
    """Return a file that the last version adds."""
    lines = map(json.loads, entry_of(folder).read_text().splitlines())
    return without_checksums(folder / str(next(line["add"]["path"] for line in lines if "add" in line)))


def checkpoint_of(folder: Path) -> Path:
    return without_checksums(next((folder / "_delta_log").glob("*.checkpoint.parquet")))


def half(whole: bytes) -> bytes:
    return whole[: len(whole) // 2]


def nothing(_: bytes) -> bytes:
    return b""


def first_line(whole: bytes) -> bytes:
    return whole[: whole.index(b"\n") + 1]


def zeros(whole: bytes) -> bytes:
    return bytes(len(whole))


def without_a_sector(whole: bytes) -> bytes:
    return whole[:SECTOR_BYTES] + bytes(SECTOR_BYTES) + whole[2 * SECTOR_BYTES :]


Tear = Callable[[bytes], bytes]


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
    ("of", "tear", "message"),
    [
        (entry_of, half, "its entry in the log cannot be read"),
        (file_of, without_a_sector, "its rows cannot be read"),
        *(
            pytest.param(*rare, marks=pytest.mark.heavy)
            for rare in (
                (entry_of, nothing, "it is empty"),
                (entry_of, first_line, "lacks lines: numOutputRows is 20, and it has 0"),
                (entry_of, zeros, "its entry in the log cannot be read"),
                (file_of, None, "is missing"),
                (file_of, nothing, "has 0 of"),
                (file_of, half, "has .* of .* bytes"),
            )
        ),
    ],
)
def test_a_torn_version_is_found_and_without_it_the_table_is_that_of_the_commit_before(
    spark: SparkSession, folder: Path, of: Callable[[Path], Path], tear: Tear | None, message: str
) -> None:
    torn = of(folder)
    torn.unlink() if tear is None else torn.write_bytes(tear(torn.read_bytes()))
    with pytest.raises(StopError, match=f"version 2 is not whole: .*{message}") as stopped:
        DeltaTable(spark, str(folder), TABLE)
    entry = entry_of(folder)
    assert f"remove {entry} and" in str(stopped.value)
    for name in (entry.name, entry.with_suffix(".crc").name, f".{entry.name}.crc"):
        entry.with_name(name).unlink(missing_ok=True)
    assert last_offset(spark, folder) == 20
    assert DeltaTable(spark, str(folder), TABLE).rows().count() == 20


@pytest.mark.guarantee(5)
@pytest.mark.heavy
@pytest.mark.parametrize(
    ("of", "tear"), [(file_of, half), *((checkpoint_of, tear) for tear in (half, zeros, without_a_sector))]
)
def test_what_is_torn_beside_a_checkpoint_of_the_log_is_found_and_without_it_the_table_is_whole(
    spark: SparkSession, folder: Path, tmp_path: Path, of: Callable[[Path], Path], tear: Tear
) -> None:
    is_of_log = of is checkpoint_of
    jvm.delta_log(spark, str(folder)).checkpoint()
    folder = Path(shutil.copytree(folder, tmp_path / "as another process finds it"))
    DeltaTable(spark, str(folder), TABLE)  # whole
    of(folder).write_bytes(tear(of(folder).read_bytes()))
    folder = Path(shutil.copytree(folder, tmp_path / "as the next process finds it"))
    told = rf"is not whole: .*{2:020}\.checkpoint\* and _last_checkpoint {'in' if is_of_log else 'beside it'}"
    with pytest.raises(StopError, match=told):
        DeltaTable(spark, str(folder), TABLE)
    log = folder / "_delta_log"
    for file in (*log.glob(f"{2:020}.checkpoint*" if is_of_log else f"*{2:020}.*"), log / "_last_checkpoint"):
        file.unlink()
    assert last_offset(spark, folder) == (40 if is_of_log else 20)
    assert DeltaTable(spark, str(folder), TABLE).rows().count() == (40 if is_of_log else 20)


@pytest.mark.parametrize(
    ("name", "length"),
    [(f"{2:020}.checkpoint.parquet", 0), ("_last_checkpoint", 0), ("_last_checkpoint", 100), (f"{2:020}.crc", 100)],
)
@pytest.mark.heavy
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
