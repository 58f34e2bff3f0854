"""An outbox that counts the polls of its receipts."""

from __future__ import annotations

from collections.abc import Sequence

from agent.store.port import Batch, OutboxError
from tests.support.memory_outbox import MemoryOutbox
from tests.support.waiting import wait_for_count

EVENTS = 50


class CountingOutbox(MemoryOutbox):
    """Counts the queries for outstanding batches: one for each poll. Its disk may be full."""

    polls = 0
    is_full = False

    def set_fact(self, name: str, value: str) -> None:
        if self.is_full:
            raise OutboxError("the disk is full")
        super().set_fact(name, value)

    def forwarded(self) -> Sequence[Batch]:
        self.polls += 1
        return super().forwarded()


def wait_for_polls(outbox: CountingOutbox, polls: int = 5) -> None:
    """Wait until polls have begun and ended after this moment."""
    before = outbox.polls
    wait_for_count(lambda: outbox.polls - before, polls + 1, "polls", or_more=True)


def processed(outbox: MemoryOutbox) -> int:
    return sum(batch.last - batch.first + 1 for batch in outbox.processed)
