"""The user's transform of a batch's rows: the same rows with more columns, some of them rejected with a reason."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, NullType, StringType, StructType

from cloud.hooks import REJECT, REJECTED, Hook
from cloud.runtime import jvm
from cloud.table import rows

_PLACE = ["kafka_partition", "kafka_offset"]


@dataclass(frozen=True, slots=True)
class Transformed:
    """The outcome for one batch."""

    rows: DataFrame
    """The columns of `rows.SCHEMA`, those of the transform, and REJECT."""
    columns: StructType
    """Those of the transform."""
    rejected: int
    entered: DataFrame
    """What the transform was given, and the columns beside it."""

    def kept(self) -> DataFrame:
        """Return the rows for the table."""
        return self.rows.filter(F.col(REJECT).isNull()).drop(REJECT)

    def refused(self) -> DataFrame:
        """Return the rejected rows with the columns beside them, and their reason."""
        reasons = self.rows.filter(F.col(REJECT).isNotNull()).select(*_PLACE, reason().alias("reason"))
        return self.entered.drop("reason").join(F.broadcast(reasons), on=_PLACE, how="inner")


class Transform:
    """Calls the user's function once for each batch."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self.may_only_add = True
        """Whether `added` is worth a call: False once a batch has shown that the function does more."""
        hook.check()

    def added(self, entered: DataFrame) -> DataFrame | None:
        """Return rows of `rows.COLUMNS` with the function's columns, where its plan proves them the same rows.

        None where it may be others, or where some may be rejected. Errors as by `of`.
        """
        given = entered.select(*rows.COLUMNS)
        with self._hook.called() as call:
            made = call(given)
            self._check_schema(made)
        self.may_only_add = REJECT not in made.columns and jvm.only_adds_columns(made, given)
        return made if self.may_only_add else None

    @contextmanager
    def of(self, entered: DataFrame) -> Iterator[Transformed]:
        """Yield the outcome for the rows without a `reason`, computed once and held within the block.

        Raise StopError where it is not the same rows, HookError for an error of the function. A part that an executor
        loses is an error, too: computed again, it might be another one.
        """
        held = entered.localCheckpoint()
        given = held.filter(F.col("reason").isNull()).select(*rows.COLUMNS)
        with self._hook.called() as call:
            made = call(given)
            self._check_schema(made)
            made = _with_reject(made).localCheckpoint()
        try:
            columns = StructType([field for field in made.schema if field.name not in (*rows.COLUMNS, REJECT)])
            yield Transformed(made, columns, self._check_rows(given, made), held)
        finally:
            jvm.release(made)
            jvm.release(held)

    def _check_schema(self, made: object) -> None:
        if not isinstance(made, DataFrame):
            raise self._hook.broken(f"it returns {type(made).__name__}, not a DataFrame")
        twice = [name for name, count in Counter(map(str.lower, made.columns)).items() if count > 1]
        if twice:
            raise self._hook.broken(f"it returns two columns with the name {twice[0]}")
        if odd := [name for name in made.columns if name != REJECT and name.lower() == REJECT]:
            raise self._hook.broken(f"its column {odd[0]} rejects nothing: write {REJECT}")
        found: dict[str, DataType] = {field.name: field.dataType for field in made.schema}
        for name, kind in {REJECT: StringType(), **rows.COLUMNS}.items():
            if name == REJECT and isinstance(found.get(name, kind), NullType):
                continue
            if name not in found and name != REJECT:
                raise self._hook.broken(f"it does not return the column {name}")
            if (other := found.get(name, kind)) != kind:
                raise self._hook.broken(
                    f"its column {name} has the type {other.simpleString()}, and the job's has {kind.simpleString()}: "
                    "give the new column another name"
                )
            found.pop(name, None)
        if untyped := [name for name, kind in found.items() if isinstance(kind, NullType)]:
            raise self._hook.broken(f"its column {untyped[0]} has no type: cast it to one")

    def _check_rows(self, given: DataFrame, made: DataFrame) -> int:
        """Return the number of rejected rows; raise StopError where the others are not the given ones, unchanged."""
        before = given.agg(*_sum()).collect()[0]
        after = made.agg(*_sum(), F.count(REJECT).alias("rejected")).collect()[0]
        if tuple(before) == (after["count"], after["content"]):
            return int(after["rejected"])
        own = given.select(*_PLACE, _hash().alias("given"))
        found = made.groupBy(*_PLACE).agg(F.count("*").alias("times"), F.first(_hash()).alias("made"))
        is_there, is_given = F.col("times").isNotNull(), F.col("given").isNotNull()
        counts = own.join(found, on=_PLACE, how="full").agg(
            F.count_if(~is_there).alias("lost"),
            F.coalesce(F.sum(F.when(is_given, F.col("times") - 1)), F.lit(0)).alias("doubled"),
            F.coalesce(F.sum(F.when(~is_given, F.col("times"))), F.lit(0)).alias("invented"),
            F.count_if(is_given & is_there & (F.col("given") != F.col("made"))).alias("changed"),
        )
        raise self._hook.other_rows(before["count"], counts.collect()[0].asDict())


def reason() -> Column:
    """Return the reason in quarantine; null for a row that is kept."""
    return F.concat(F.lit(REJECTED), F.col(REJECT))


def _with_reject(made: DataFrame) -> DataFrame:
    reject = F.col(REJECT) if REJECT in made.columns else F.lit(None)
    others = [name for name in made.columns if name not in (*rows.COLUMNS, REJECT)]
    return made.select(*rows.COLUMNS, *(made[jvm.quoted(name)] for name in others), reject.cast("string").alias(REJECT))


def _hash() -> Column:
    nulls = F.array(*map(F.isnull, rows.COLUMNS))  # which the hash itself leaves out
    return F.xxhash64(*rows.COLUMNS, nulls)


def _sum() -> list[Column]:
    """Return the number of rows and the exclusive or of their hashes, which are equal for the same rows alone."""
    return [F.count("*").alias("count"), F.coalesce(F.bit_xor(_hash()), F.lit(0)).alias("content")]
