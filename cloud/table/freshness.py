"""Fresh or late: whether the state must have seen every earlier copy of an event."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from contract.record import ClockTrust, Shared


@dataclass(frozen=True, slots=True)
class Horizon:
    """What one batch's state can see; moments in milliseconds since 1970 UTC."""

    batch_time: int
    birth: int
    """Time of the first batch of this state, or of the first with a window as large as now."""
    window_seconds: int
    overlaps: bool = False
    """The table has some of the batch already: everything is late."""

    @property
    def skew(self) -> int:
        """How far ahead a clock that counts as good may be."""
        return self.window_seconds * 1000 // 4

    @property
    def latest(self) -> int:
        """The end of what a batch of this time can have seen, with a clock that is not wrong by more than a skew."""
        return self.batch_time + self.skew

    @property
    def can_be_fresh(self) -> bool:
        """Whether events of this very moment are fresh: the state is old enough."""
        return not self.overlaps and self.batch_time >= self.birth + self.skew


def is_fresh(horizon: Horizon) -> Column:
    """Return whether events are fresh, never null; an id without a time may have been used before (`reuse.py`): late.

    A time that is ahead of its own acceptance vouches for nothing: a copy may come when it is no longer ahead.
    """
    if horizon.overlaps:
        return F.lit(False)
    skew = horizon.skew
    bounds = (
        horizon.birth + skew,
        skew,
        horizon.latest,
        horizon.batch_time - horizon.window_seconds * 1000 + skew,
        horizon.latest,
        skew,
    )
    # Numbers would be written into the code that Spark makes of this, to be compiled anew in each batch. An array is
    # not, as long as it stays one: the index has to look as if it came from the row. By get(), since the code that
    # Spark 4 makes of array[index] does not ask whether the index is null.
    array = f"array({', '.join(f'{bound}L' for bound in bounds)})"
    born, ahead, latest, oldest, newest, early = (
        f"get({array}, octet_length(clock) * 0 + {at})" for at in range(len(bounds))
    )
    # Nor may a second part stand twice (`unix_millis(bound)` does): their order in the code would change by chance.
    # As text: one call into the Java machine instead of a hundred.
    return F.expr(
        f"""coalesce(
            clock = '{ClockTrust.TRUSTED}'
            AND shared <> '{Shared.NONE}'
            AND unix_millis(bound) >= {born}
            AND unix_millis(received) <= unix_millis(appended) + {ahead}
            AND unix_micros(bound) <= unix_micros(received) + 1000L * {early}
            AND unix_millis(bound) <= {latest}
            AND appended < timestamp_millis({newest})
            AND unix_millis(bound) > {oldest}, false)"""
    )


def latest_ahead(horizon: Horizon) -> Column:
    """Return Kafka's latest append time beyond what this batch can have seen, in milliseconds; null without one.

    The driver's clock is behind then, or a broker's is ahead. The state has entered these records with too early a
    time and forgets them too early, so nothing that may have a copy among them is fresh later on (`birth`).
    """
    appended = F.unix_millis("appended")
    return F.max(F.when(F.col("reason").isNull() & (appended >= horizon.latest), appended))
