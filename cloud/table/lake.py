"""A table and its quarantine as a sink of Spark: a look-up of late events, then one append with its commit."""

import logging
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from cloud.errors import HookError
from cloud.runtime import jvm
from cloud.table import id_reuse, lookup, quarantine, rows, widening
from cloud.table.commits import Commit
from cloud.table.devices import Devices
from cloud.table.freshness import Horizon, is_fresh
from cloud.table.lake_table import LakeTable
from cloud.table.lookup import BatchCounts, count_rows
from cloud.table.sink import NewRows, Written
from cloud.table.transform import Transform

logger = logging.getLogger(__name__)

_LATE_OR_BAD = "oncegate: this batch has a late or a bad row"


@dataclass(slots=True)
class LakeSink:
    """A `Sink` of two tables that Spark writes."""

    _table: LakeTable
    _quarantine_table: LakeTable
    _devices: Devices
    _retention_seconds: int
    _transform: Transform | None
    _schema_written: StructType | None = None
    """The columns that the transform's latest batch in one pass had."""
    _expects_fresh: bool | None = None
    """Whether to expect neither late nor bad rows, as in the latest batch; affects only the speed."""

    @property
    def id(self) -> str:
        return self._table.id

    @property
    def folders(self) -> tuple[str, ...]:
        return self._table.path, self._quarantine_table.path

    def last_commit(self) -> Commit | None:
        return self._table.last_commit()

    def last_claim(self) -> int:
        """Return the highest claim; that of the quarantine where the table is a new one beside it."""
        commits = self._table.last_commit(), self._quarantine_table.last_commit()
        return max((commit.claim for commit in commits if commit is not None), default=0)

    def check(self) -> None:
        self._table.check()
        self._quarantine_table.check()

    def claim(self, commit: Commit) -> None:
        self._table.claim(commit)

    def new_rows(self) -> NewRows | None:
        found = self._table.new_rows()
        return None if found is None else NewRows(f"{self.id}-{found[0].version}", found[1])

    def write(self, survivors: DataFrame, commit: Commit, horizon: Horizon) -> Written:
        if self._expects_fresh is None:
            self._expects_fresh = horizon.can_be_fresh
        written = self._write_in_one_pass(survivors, commit, horizon) if self._expects_fresh else None
        return written or self._write_with_look_up(survivors, commit, horizon)

    def _write_in_one_pass(self, survivors: DataFrame, commit: Commit, horizon: Horizon) -> Written | None:
        """Write the batch; return None, with nothing committed, where a row is late or bad, or a look is needed.

        So it is where a transform does more than to add columns that the table has, and where it fails: what is held
        tells its errors from those of the table.
        """
        logger.info("batch=%d stage=write passes=1", commit.batch)
        is_plain = F.col("reason").isNull() & is_fresh(horizon)
        plain = survivors.filter(
            F.when(is_plain, F.lit(True)).otherwise(F.raise_error(F.lit(_LATE_OR_BAD)).cast("boolean"))
        )
        decoded = rows.decode(plain, self._devices.frame())
        try:
            if self._transform is not None:
                added = self._transform.added(decoded)
                if added is None or not self._has_columns(added.schema):
                    return None
                decoded = added
            return Written(self._table.append(decoded, commit))
        except (HookError, *jvm.FAILURES) as error:
            if _LATE_OR_BAD not in f"{error}{error.__cause__}":
                if self._transform is None:
                    raise
                logger.warning("batch=%d stage=write passes=1 error=%r", commit.batch, str(error).partition("\n")[0])
            return None

    def _has_columns(self, schema: StructType) -> bool:
        if schema != self._schema_written and self._table.lacks(schema):
            return False
        self._schema_written = schema
        return True

    def _write_with_look_up(self, survivors: DataFrame, commit: Commit, horizon: Horizon) -> Written:
        """Count, quarantine, look up and write, on a persisted batch.

        The dedup may keep another of two duplicates in another evaluation, if a persisted part is lost. That does no
        harm: where one of the two is fresh, the table has none of them, and the append is a single evaluation.
        """
        judged = survivors.withColumn("fresh", is_fresh(horizon)).persist()
        try:
            counts = count_rows(judged, horizon)
            logger.info(
                "batch=%d stage=read rows=%d late=%d bad=%d", commit.batch, counts.rows, counts.late, counts.bad
            )
            only_adds = self._transform is None or self._transform.may_only_add
            self._expects_fresh = not counts.late and not counts.bad and only_adds
            good = judged.filter(F.col("reason").isNull())
            found, reused, reused_count = self._look_up(good.filter(~F.col("fresh")), counts, commit)
            unfit = [judged.filter(F.col("reason").isNotNull())] if counts.bad else []
            unfit += [reused] if reused is not None and reused_count else []
            once = id_reuse.first_of_each(good) if counts.has_equals else good
            new, born = lookup.without_found(once, found), commit.born_after(counts.ahead)
            if self._transform is None:
                written, rejected = self._write_both(rows.decode(new, self._devices.frame()), unfit, born), 0
            else:
                with self._transform.of(rows.decode(new, self._devices.frame(), quarantine.BESIDE)) as made:
                    rejected = made.rejected
                    self._table.widen(made.columns, widening.OF_TRANSFORM)
                    written = self._write_both(made.kept(), [*unfit, *([made.refused()] if rejected else [])], born)
            bad = counts.bad + reused_count
            duplicates = counts.rows - bad - rejected - written
            return Written(written, counts.late, bad, duplicates, counts.ahead, rejected)
        finally:
            judged.unpersist()

    def _look_up(
        self, late: DataFrame, counts: BatchCounts, commit: Commit
    ) -> tuple[lookup.Matches | None, DataFrame | None, int]:
        """Return the late events that the table has, those with reused ids, and the number of the latter."""
        if not counts.late:
            return None, None, 0
        logger.info("batch=%d stage=look-up rows=%d", commit.batch, counts.late)
        found = lookup.find(late, self._table.rows(), counts.search)
        logger.info("batch=%d stage=looked-up found=%d", commit.batch, found.count)
        if counts.search.days is not None:  # every identity has a time or a label
            return found, None, 0
        reused = id_reuse.reused_ids(late, found.rows, self._retention_seconds, has_equals=counts.has_equals)
        return found, reused, reused.count()

    def _write_both(self, new: DataFrame, unfit: list[DataFrame], commit: Commit) -> int:
        """Write the records that are no rows into quarantine, then the rows; return the number of rows."""
        if unfit:
            logger.info("batch=%d stage=quarantine", commit.batch)
            records = reduce(DataFrame.unionByName, (frame.select(*quarantine.TAKEN) for frame in unfit))
            written = quarantine.put(self._quarantine_table, records, commit)
            logger.info("batch=%d stage=quarantined rows=%d", commit.batch, written)
        logger.info("batch=%d stage=write passes=2", commit.batch)
        return self._table.append(new, commit)
