"""The coordinator of transactions: who holds a transactional id, and how its transactions end.

Its steps are those of models/delivery/delivery.tla: a later producer fences the earlier one, the coordinator decides
before the partitions know, and an end that it has decided may not be carried out (torn); then the transaction ends in
each partition as the next one there does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import TYPE_CHECKING, Final

from tests.schedules.kafka.log import Outcome

if TYPE_CHECKING:
    from tests.schedules.kafka.cluster import Cluster, Committed
    from tests.schedules.scheduler import Scheduler

TRANSACTION_SECONDS: Final = (10.0, 20.0)
"""When an open transaction is aborted: after its time limit, at the coordinator's next look."""
MARKER_SECONDS: Final = (0.0002, 0.05)
"""How long after the decision a partition has the control record."""
LOOK_SECONDS: Final = 0.1
"""After which a coordinator that could not reach the partitions tries again."""


class Refusal(Enum):
    """Why a request of a transactional producer is refused."""

    FENCED = "a later producer has its id"
    BUSY = "the end of the transaction before is not yet carried out"


@dataclass(slots=True)
class _Held:
    """The state of a transactional id."""

    producer: int = 0
    """The latest; 0 where the coordinator has fenced it."""
    ended: int = 0
    """How many transactions of this producer have ended."""
    outcome: Outcome | None = None
    """Of the latest of them."""
    is_open: bool = False
    partitions: set[int] = field(default_factory=set)
    """In which the open transaction has records."""
    offsets: tuple[str, Mapping[int, Committed]] | None = None
    """The group and its offsets that the open transaction commits."""
    due: dict[int, Outcome] = field(default_factory=dict)
    """The partitions that do not have the decided end yet."""


class Coordinator:
    """Answers the requests of transactional producers, each as a step without a thread."""

    def __init__(self, scheduler: Scheduler, cluster: Cluster, random: Random) -> None:
        self._scheduler = scheduler
        self._cluster = cluster
        self._random = random
        self._ids: dict[str, _Held] = {}
        self.tears = 0
        """How many ends are not to be carried out in the partitions."""

    def init(self, transactional_id: str, producer: int) -> Refusal | None:
        """Register a producer as the holder of the id; an open transaction of an earlier one is aborted."""
        held = self._ids.setdefault(transactional_id, _Held())
        if held.is_open:
            self._decide(transactional_id, held, Outcome.ABORTED)
        held.producer, held.ended, held.outcome = producer, 0, None
        return Refusal.BUSY if held.due else None

    def add(self, transactional_id: str, producer: int, partition: int) -> Refusal | None:
        """Make a partition one of the open transaction, which begins with its first one."""
        held = self._ids[transactional_id]
        if (refusal := self._begin(transactional_id, held, producer)) is None:
            held.partitions.add(partition)
        return refusal

    def add_offsets(
        self, transactional_id: str, producer: int, group: str, offsets: Mapping[int, Committed]
    ) -> Refusal | None:
        """Have the open transaction commit a group's offsets."""
        held = self._ids[transactional_id]
        if (refusal := self._begin(transactional_id, held, producer)) is None:
            held.offsets = group, offsets
        return refusal

    def end(self, transactional_id: str, producer: int, number: int, outcome: Outcome) -> Refusal | None:
        """End a producer's transaction of this number, counted from 1; an end that is repeated changes nothing."""
        held = self._ids[transactional_id]
        if held.producer != producer:
            return Refusal.FENCED
        if number > held.ended:
            held.ended, held.outcome = number, outcome
            self._decide(transactional_id, held, outcome)
        return None if held.outcome is outcome else Refusal.FENCED

    def _begin(self, transactional_id: str, held: _Held, producer: int) -> Refusal | None:
        if held.producer != producer:
            return Refusal.FENCED
        if held.due:
            return Refusal.BUSY
        if not held.is_open:
            held.is_open = True
            expire = self._expire(transactional_id, producer, held.ended)
            self._scheduler.call(self._random.uniform(*TRANSACTION_SECONDS), "transaction expires", expire)
        return None

    def _expire(self, transactional_id: str, producer: int, number: int) -> Callable[[], None]:
        def expire() -> None:
            held = self._ids[transactional_id]
            if held.is_open and (held.producer, held.ended) == (producer, number):
                held.producer = 0
                self._decide(transactional_id, held, Outcome.ABORTED)

        return expire

    def _decide(self, transactional_id: str, held: _Held, outcome: Outcome) -> None:
        if outcome is Outcome.COMMITTED and held.offsets is not None:
            self._cluster.commit_offsets(held.offsets[1], held.offsets[0])
        partitions = sorted(held.partitions)
        if partitions and self.tears:
            self.tears -= 1
            partitions = []
            self._scheduler.note(f"kafka tears {transactional_id}")
        held.due = dict.fromkeys(partitions, outcome)
        held.is_open, held.partitions, held.offsets = False, set(), None
        self._scheduler.note(f"kafka decides {transactional_id} {outcome.value} {partitions}")
        for partition in partitions:
            self._carry_out_later(transactional_id, held, partition, self._random.uniform(*MARKER_SECONDS))

    def _carry_out_later(self, transactional_id: str, held: _Held, partition: int, seconds: float) -> None:
        def carry_out() -> None:
            if not self._cluster.is_up:
                self._carry_out_later(transactional_id, held, partition, LOOK_SECONDS)
                return
            self._cluster.append_end(partition, transactional_id, held.due.pop(partition))

        self._scheduler.call(seconds, "transaction ends in a partition", carry_out)
