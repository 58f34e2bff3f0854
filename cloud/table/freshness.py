"""Fresh or late: whether the state certainly contains every earlier duplicate of an event."""

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from contract.record import ClockTrust, SharedDay


@dataclass(frozen=True, slots=True)
class Horizon:
    """The limits of the records in one batch's state; times in milliseconds since 1970 UTC."""

    batch_time_ms: int
    birth_ms: int
    """Time of the state's first batch, or of the first one with a window as large as now."""
    window_seconds: int
    overlaps: bool = False
    """Whether the table has a part of the batch already; everything is late then."""

    @property
    def skew_ms(self) -> int:
        """Return by how many milliseconds a trusted clock may be ahead."""
        return self.window_seconds * 1000 // 4

    @property
    def latest_ms(self) -> int:
        """Return the latest time of a record in this batch, if no clock is wrong by more than the skew."""
        return self.batch_time_ms + self.skew_ms

    @property
    def can_be_fresh(self) -> bool:
        """Whether the state is old enough for events of this time to be fresh."""
        return not self.overlaps and self.batch_time_ms >= self.birth_ms + self.skew_ms


def is_fresh(horizon: Horizon) -> Column:
    """Return whether events are fresh, never null.

    An event without a time is late, since its id may have been used before (`id_reuse`). So is one whose time is ahead
    of its acceptance: a duplicate may arrive when the time is no longer ahead.
    """
    if horizon.overlaps:
        return F.lit(False)
    skew = horizon.skew_ms
    bounds = (
        horizon.birth_ms + skew,
        skew,
        horizon.latest_ms,
        horizon.batch_time_ms - horizon.window_seconds * 1000 + skew,
        horizon.latest_ms,
        skew,
    )
    # Spark writes literal numbers into the generated code, which would be compiled again in each batch. It does not do
    # so with an array, unless it can fold the index: so the index is computed from the row. get() is used because the
    # code that Spark 4 generates for array[index] does not check whether the index is null.
    array = f"array({', '.join(f'{bound}L' for bound in bounds)})"
    born, ahead, latest, oldest, newest, early = (
        f"get({array}, octet_length(clock) * 0 + {at})" for at in range(len(bounds))
    )
    # No other subexpression may occur twice besides `unix_millis(bound)`: their order in the code would vary.
    # As text, this takes one call into the JVM instead of a hundred.
    return F.expr(
        f"""coalesce(
            clock = '{ClockTrust.TRUSTED}'
            AND shared <> '{SharedDay.NONE}'
            AND unix_millis(bound) >= {born}
            AND unix_millis(received) <= unix_millis(appended) + {ahead}
            AND unix_micros(bound) <= unix_micros(received) + 1000L * {early}
            AND unix_millis(bound) <= {latest}
            AND appended < timestamp_millis({newest})
            AND unix_millis(bound) > {oldest}, false)"""
    )


def latest_ahead(horizon: Horizon) -> Column:
    """Return the latest append time after `Horizon.latest_ms`, in milliseconds; null without one.

    The driver's clock is behind then, or a broker's is ahead (decision 42). The state has these records under too early
    a time and expires them too early, so later events that may have a duplicate among them are not fresh (`birth_ms`).
    """
    appended = F.unix_millis("appended")
    return F.max(F.when(F.col("reason").isNull() & (appended >= horizon.latest_ms), appended))
