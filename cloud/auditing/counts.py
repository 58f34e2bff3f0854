"""What counts as a sequence, whatever a writer to the topic states."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from contract.record import NUMBER_MAX


def is_count(number: Column) -> Column:
    """Whether a bigint is in [0, NUMBER_MAX).

    It names the column once: Spark copies the expression behind a column for each use, at every level of the plan.
    """
    return number.bitwiseAND(F.lit(-NUMBER_MAX)) == 0
