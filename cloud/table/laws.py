"""What a transform of the user's may do with rows, in Spark and without it: add columns, and reject with a reason."""

from __future__ import annotations

from collections.abc import Mapping

from cloud.errors import StopError

REJECT = "reject"
REJECTED = "rejected: "
"""Begins the reason in quarantine."""


def broken(hook: str, what: str) -> StopError:
    """Return the error for what a transform has returned."""
    return StopError(f"transform {hook}: {what}. Nothing of the batch is written or receipted")


def other_rows(hook: str, rows: int, counts: Mapping[str, int]) -> StopError:
    """Return the error for other rows than the given ones; `counts` are those that are lost, doubled, and so on."""
    told = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    return broken(
        hook,
        f"of {rows} rows it has {told}. It may add columns, and leave out a row only by a text in the column {REJECT}",
    )
