"""Bounds how often batches are sent again since the table begins above them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from agent.forward.receipts.rules import Verdict, View
from agent.forward.receipts.truncation import Decided

RESEND_SECONDS: Final = 3_600.0
"""How soon a partition's batches are sent again for a `first` that was raised since: a table that raises it with each
commit must not cost a link all that it carries."""


class Resends:
    """The `first` of each partition for which batches were sent again of late; times are monotonic, in seconds.

    Batches that were under way then are sent again for the same `first`: what follows stands above it.
    """

    def __init__(self) -> None:
        self._sent: dict[int, tuple[int, float]] = {}

    def first_max(self, now: float) -> Mapping[int, int]:
        """Return the highest `first` of a partition for which batches are sent again now; any where there is none."""
        return {partition: first for partition, (first, at) in self._sent.items() if now - at < RESEND_SECONDS}

    def note(self, decided: Decided, view: View, now: float) -> None:
        """Note for which `first` batches are sent again."""
        known = self.first_max(now)
        for batch, decision in decided:
            if decision.verdict is Verdict.RETURN and view.topic_id == batch.topic_id:
                for partition, offsets in batch.partitions.items():
                    receipt = view.partitions[partition].receipt
                    if receipt is not None and max(offsets.lowest, known.get(partition, -1)) < receipt.first:
                        self._sent[partition] = receipt.first, now
