"""The log of a partition: records, those of transactions among them, and the control records that end these."""

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

LATEST: Final = 2
"""How many transactions of a transactional id retention does not reach."""


class Outcome(Enum):
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class Record:
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...]
    producer: int
    """Of a control record: the latest producer that the coordinator knew then."""
    number: int
    """Counted by its producer in this partition."""
    transactional_id: str = ""
    """Of the producer in whose transaction it is; empty outside of a transaction."""
    outcome: Outcome | None = None
    """Of a control record: how the transaction of its id has ended whose records are before it."""
    leader_epoch: int = 0
    time_ms: int = 0


@dataclass(slots=True)
class Partition:
    """The log of a partition, as its leader has it."""

    leader_epoch: int = 0
    low: int = 0
    log: list[Record] = field(default_factory=list)

    @property
    def end(self) -> int:
        return len(self.log)

    @property
    def stable_end(self) -> int:
        """Where readers of committed records end: at the first record of an open transaction."""
        ended, stable = {""}, self.end
        for offset in reversed(range(self.end)):
            record = self.log[offset]
            if record.outcome is not None:
                ended.add(record.transactional_id)
            elif record.transactional_id not in ended:
                stable = offset
        return stable

    def is_visible(self, offset: int) -> bool:
        """Whether readers of committed records that get past an offset have received its record."""
        record = self.log[offset]
        if record.outcome is not None or not record.transactional_id:
            return record.outcome is None
        after = (one for one in self.log[offset:] if one.transactional_id == record.transactional_id)
        return next((one.outcome for one in after if one.outcome is not None), None) is Outcome.COMMITTED

    @property
    def latest_transactions(self) -> int:
        """Where the two latest transactions of a transactional id begin: their outcome may yet have to be read."""
        ends: Counter[str] = Counter()
        begin = self.end
        for offset in reversed(range(self.end)):
            record = self.log[offset]
            if record.outcome is not None:
                ends[record.transactional_id] += 1
            elif record.transactional_id and ends[record.transactional_id] <= LATEST:
                begin = offset
        return begin

    def latest_of(self, transactional_id: str) -> Record | None:
        """Return the latest record of a transactional id, which may be a control record."""
        return next((one for one in reversed(self.log) if one.transactional_id == transactional_id), None)

    def end_of(self, epoch: int) -> int:
        """Return where a leader epoch ends (KIP-320)."""
        if epoch >= self.leader_epoch:
            return self.end
        return next((place for place, record in enumerate(self.log) if record.leader_epoch > epoch), self.end)
