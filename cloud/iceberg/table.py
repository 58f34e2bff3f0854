"""The job's Iceberg tables, whose snapshots hold rows together with the offsets that they came from."""

import logging
import re
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from cloud.errors import SinkError, StopError
from cloud.iceberg import catalog
from cloud.runtime import disk, jvm
from cloud.sinks import Tables
from cloud.table import quarantine, rows
from cloud.table.commits import CLAIM_ONLY, Commit, parse, to_json
from cloud.table.devices import Devices
from cloud.table.lake import LakeSink
from cloud.table.lake_table import LakeTable
from cloud.table.transform import Transform

logger = logging.getLogger(__name__)

_PROPERTY: Final = "oncegate"
"""The entry of a snapshot's summary that has the commit."""
_LAST, _BATCH = "oncegate_last", "oncegate_batch"
"""Tags of the job's last commit, and of its last batch: a tagged snapshot does not expire."""
_FOREVER_MS: Final = (1 << 63) - 1
"""Otherwise the table's `history.expire.max-ref-age-ms` would be that of the tags."""
_BRANCH: Final = "oncegate_job_"
_SMALL: Final = re.compile(r"(?<![^:<,])(tinyint|smallint)(?![^,>])")
_TRIES: Final = 5
"""How often a commit of another program may come between, such as those of maintenance."""
_SNAPSHOT_MS: Final = 1_800_000
"""The age above which snapshots go: the metadata have all, and are written anew by each commit."""
_EXPIRY_SECONDS: Final = 300.0

PROPERTIES: Final = {
    "format-version": "2",
    # A batch has few days: it is not worth a shuffle.
    "write.distribution-mode": "none",
    "write.spark.fanout.enabled": "true",
    "write.parquet.bloom-filter-enabled.column.fingerprint": "true",
    "write.metadata.metrics.default": "none",
    "write.metadata.metrics.column.received": "full",
    "write.metadata.metrics.column.event_time": "full",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}


def open_tables(
    spark: SparkSession,
    tables: Tables,
    devices: Devices,
    retention: int,
    *,
    transform: Transform | None = None,
    **_: Any,
) -> LakeSink:
    """Open both tables, which are created if absent; a snapshot always tells of its new rows."""
    names = catalog.connect(spark, tables)
    for name, schema, by in zip(names, (rows.SCHEMA, quarantine.SCHEMA), (rows.PARTITIONED_BY, ()), strict=True):
        create(spark, name, schema, by)
    table, unfit = (IcebergTable(spark, name, keeps_rows=name == names[0]) for name in names)
    for opened in (table, unfit):
        opened.check_files()
    table.widen(rows.SCHEMA)
    unfit.widen(quarantine.SCHEMA)
    return LakeSink(table, unfit, devices, retention, transform)


def create(spark: SparkSession, name: str, schema: StructType, partitioned_by: Sequence[str] = ()) -> None:
    """Create a table where there is none, with a first snapshot, to which a branch can refer."""
    if spark.catalog.tableExists(name):
        return
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {name.rpartition('.')[0]}")
    creation = spark.createDataFrame([], schema).writeTo(name).using("iceberg")
    for key, value in PROPERTIES.items():
        if ".column." not in key or key.rpartition(".")[2] in schema.names:
            creation = creation.tableProperty(key, value)
    if partitioned_by:
        creation = creation.partitionedBy(*map(F.col, partitioned_by))
    creation.create()


@dataclass(frozen=True, slots=True)
class _State:
    """A table as it is now."""

    table: Any
    """Iceberg's `Table`."""
    snapshot: Any
    """That of the job's last commit; None where there is none yet."""
    commit: Commit | None
    removal: str | None
    """What has removed rows since."""


class IcebergTable(LakeTable):
    """A table of a catalog (decision 79).

    Iceberg appends to whatever the table has become, so an append excludes no other job. Rows are appended to a branch
    of this process, and the branch becomes the table only where the table is still what the branch began with.
    """

    format = "Iceberg"

    def __init__(self, spark: SparkSession, name: str, *, keeps_rows: bool = False) -> None:
        super().__init__(spark, name, name)
        self._keeps_rows = keeps_rows
        """Whether rows that another program removes are lost, since the table's offsets state that it has them."""
        self._branch = f"{_BRANCH}{uuid.uuid4().hex}"
        self._is_first = True
        """Whether nothing was appended yet, so that branches of killed processes may be left."""
        self._expiry_due = time.monotonic() + _EXPIRY_SECONDS
        table = self._load()
        self.id = str(table.uuid())
        self.path = str(table.location())

    def last_commit(self) -> Commit | None:
        return self._state().commit

    def check(self) -> None:
        self._check(self._state())

    def rows(self) -> DataFrame:
        head = self._load().currentSnapshot()
        read = self._spark.read if head is None else self._spark.read.option("versionAsOf", str(head.snapshotId()))
        return self._whole(read.table(self.name))  # a snapshot has the columns of its time

    def new_rows(self) -> tuple[Commit, DataFrame] | None:
        table = self._load()
        tag = table.refs().get(_BATCH)
        if tag is None:
            return None
        snapshot = table.snapshot(tag.snapshotId())
        commit = _commit_of(snapshot)
        paths = [str(file.location()) for file in _added(table, snapshot)]
        if commit is None or not paths:
            return None
        if gone := [path for path in paths if not table.io().newInputFile(path).exists()]:
            raise self._compacted(gone[0], commit)
        return commit, self._added_rows(snapshot)

    def check_files(self) -> None:
        """Raise StopError where the last commit's rows cannot be read, as after a power cut before its flush."""
        snapshot = self._state().snapshot
        if snapshot is None or not disk.local_folders(self._spark, [self.path]):
            return
        try:
            self._added_rows(snapshot).write.format("noop").mode("overwrite").save()
        except jvm.FAILURES as error:
            raise StopError(
                f"table {self.name}: its last commit is not whole: {jvm.cause(error)}. A power cut before its flush "
                "does that, and then no receipt covers it. If the power was cut, remove that commit as docs/cloud.md "
                "says for torn metadata, and start again; otherwise check the disk first"
            ) from error

    def claim(self, commit: Commit) -> None:
        self.append(self._spark.createDataFrame([], self._schema()), commit)

    def append(self, rows: DataFrame, commit: Commit) -> int:
        table = self._open_for(commit)
        to = f"{self.name}.branch_{self._branch}"
        try:
            head = self._aim(table)
            self._whole(rows).writeTo(to).option(f"snapshot-property.{_PROPERTY}", to_json(commit)).append()
        except jvm.FAILURES:
            self._open_for(commit)  # a younger job has removed the branch
            raise
        written = self._publish(table, self._written(table, head, commit), commit)
        self._expire_if_due()
        return int(written.summary().get("added-records") or 0)

    def compact(self) -> tuple[int, int]:
        done = self._actions().rewriteDataFiles(self._load()).option("min-input-files", "2").execute()
        return int(done.rewrittenDataFilesCount()), int(done.addedDataFilesCount())

    def vacuum(self, retain_seconds: int) -> None:
        before = int((time.time() - retain_seconds) * 1000)
        self._actions().deleteOrphanFiles(self._load()).olderThan(before).execute()

    def _schema(self) -> StructType:
        return self._spark.table(self._in_sql).schema

    def _types(self, schema: StructType) -> dict[str, str]:
        """Return the types as `LakeTable` does: Iceberg has no integers of less than four bytes."""
        return {name: _SMALL.sub("int", kind) for name, kind in super()._types(schema).items()}

    def _added_rows(self, snapshot: Any) -> DataFrame:
        read = self._spark.read.option("start-snapshot-id", str(snapshot.parentId()))
        return read.option("end-snapshot-id", str(snapshot.snapshotId())).table(self.name)

    def _load(self) -> Any:
        return catalog.load(self._spark, self.name)

    def _state(self) -> _State:
        table = self._load()
        tag = table.refs().get(_LAST)
        # Where somebody has dropped the tag, the job's latest commit of those that have not expired counts.
        tagged = next(filter(_commit_of, _ancestors(table)), None) if tag is None else table.snapshot(tag.snapshotId())
        if tagged is None:
            return _State(table, None, None, None)
        removal, is_met = None, False
        for snapshot in _ancestors(table):
            if snapshot.snapshotId() == tagged.snapshotId():
                is_met = True
                break
            if removal is None and _removes_rows(snapshot):
                removal = f"snapshot {snapshot.snapshotId()}, by the operation {snapshot.operation()}"
            if snapshot.sequenceNumber() < tagged.sequenceNumber() or snapshot.parentId() is None:
                break
        else:
            is_met = table.currentSnapshot() is not None  # what is between has expired
        if not is_met:
            removal = "a rollback to a snapshot before the job's last commit, or a replacement of the table"
        return _State(table, tagged, _commit_of(tagged), removal)

    def _check(self, state: _State) -> None:
        self._check_id(str(state.table.uuid()))
        if self._keeps_rows and state.removal is not None:
            raise self._removed(state.removal)

    def _open_for(self, commit: Commit) -> Any:
        """Return the table, where this commit may be the next one."""
        state = self._state()
        last = state.commit
        if last is not None and last.version >= commit.version:
            raise self._copied(commit) if last.is_by_same(commit) else self._claimed(last)
        if commit.batch != CLAIM_ONLY or last is None or last.checkpoint == commit.checkpoint:
            self._check(state)
        return state.table

    def _aim(self, table: Any) -> int:
        """Begin the branch at the table's head, and return that."""
        if table.currentSnapshot() is None:  # somebody has created or replaced it without rows
            table.newFastAppend().commit()
        for _ in range(_TRIES):
            try:
                return self._set_branch(table)
            except jvm.FAILURES:  # another program has committed at the same moment
                table.refresh()
        return self._set_branch(table)

    def _set_branch(self, table: Any) -> int:
        head = int(table.currentSnapshot().snapshotId())
        changes = table.manageSnapshots()
        refs = dict(table.refs())
        if self._is_first:  # each job removes those of others, which end or were killed
            for name in refs:
                if name.startswith(_BRANCH) and name != self._branch:
                    changes = changes.removeBranch(name)
        own = refs.get(self._branch)
        if own is None:
            changes = changes.createBranch(self._branch, head)
        elif own.snapshotId() != head:
            changes = changes.replaceBranch(self._branch, head)
        if own is None or own.snapshotId() != head:
            changes.commit()
        self._is_first = False
        return head

    def _written(self, table: Any, head: int, commit: Commit) -> Any:
        """Return the branch's snapshot; raise an error where it does not follow `head`.

        An append to a branch that another job has removed meanwhile begins it anew, behind that job's commits.
        """
        table.refresh()
        written = table.snapshot(self._branch)
        if written is None or written.parentId() != head:
            self._open_for(commit)
            raise SinkError(f"table {self.name}: its branch {self._branch} was removed while a batch was written")
        return written

    def _publish(self, table: Any, written: Any, commit: Commit) -> Any:
        """Make the branch the table, and tag it; return its snapshot.

        Where another program has committed meanwhile, its commit comes first, and the same files are added behind it.
        """
        for _ in range(_TRIES):
            try:
                changes = table.manageSnapshots().fastForwardBranch("main", self._branch)
                for tag in (_LAST,) if commit.batch == CLAIM_ONLY else (_LAST, _BATCH):
                    change = changes.replaceTag if table.refs().get(tag) is not None else changes.createTag
                    changes = change(tag, written.snapshotId()).setMaxRefAgeMs(tag, _FOREVER_MS)
                changes.commit()
            except jvm.FAILURES as error:
                failure = error
            else:
                return written
            state = self._state()
            if state.snapshot is not None and state.snapshot.snapshotId() == written.snapshotId():
                return written  # only the answer was lost
            logger.info("table=%s stage=rebase batch=%d reason=%r", self.name, commit.batch, jvm.cause(failure))
            table = self._open_for(commit)
            files = list(_added(table, written))
            head = self._aim(table)
            table.refresh()
            again = table.newFastAppend().toBranch(self._branch).set(_PROPERTY, to_json(commit))
            for file in files:
                again = again.appendFile(file)
            again.commit()
            written = self._written(table, head, commit)
        raise failure

    def _expire_if_due(self) -> None:
        """Remove old snapshots; files that no snapshot has remain for readers, until `vacuum`."""
        if time.monotonic() < self._expiry_due:
            return
        self._expiry_due = time.monotonic() + _EXPIRY_SECONDS
        before = int(time.time() * 1000) - _SNAPSHOT_MS
        try:
            self._load().expireSnapshots().expireOlderThan(before).cleanExpiredFiles(False).commit()
        except jvm.FAILURES as error:  # the rows are committed, and more snapshots only make commits slower
            logger.warning("table=%s stage=expire error=%r", self.name, jvm.cause(error))

    def _whole(self, rows: DataFrame) -> DataFrame:
        """Return the rows with the table's other columns as nulls."""
        own = set(rows.columns)
        others = [field for field in self._schema() if field.name not in own]
        return rows.select("*", *(F.lit(None).cast(field.dataType).alias(field.name) for field in others))

    def _actions(self) -> Any:
        session: Any = self._spark
        return jvm.java_class(self._spark, "org.apache.iceberg.spark.actions.SparkActions").get(session._jsparkSession)


def _ancestors(table: Any) -> Iterator[Any]:
    """Yield the table's snapshots from the newest on, as far as they have not expired."""
    snapshot = table.currentSnapshot()
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parentId()
        snapshot = None if parent is None else table.snapshot(parent)


def _commit_of(snapshot: Any) -> Commit | None:
    return parse(snapshot.summary().get(_PROPERTY))


def _added(table: Any, snapshot: Any) -> Iterator[Any]:
    """Yield the data files that a snapshot has added."""
    files = snapshot.addedDataFiles(table.io()).iterator()
    while files.hasNext():
        yield files.next()


def _removes_rows(snapshot: Any) -> bool:
    """Whether an operation of another program has left fewer rows; an UPDATE replaces each."""
    summary = dict(snapshot.summary())
    if _commit_of(snapshot) is not None or snapshot.operation() in ("append", "replace"):
        return False
    gained, lost = (sum(int(summary.get(name) or 0) for name in names) for names in (_GAIN, _LOSE))
    return gained < lost


_GAIN = ("added-records", "removed-position-deletes", "removed-equality-deletes")
_LOSE = ("deleted-records", "added-position-deletes", "added-equality-deletes")
