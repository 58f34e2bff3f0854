"""The coordinator of transactions: who holds a transactional id, and how its transactions end.

It does what Kafka's does for clients without transactions of the second version (KIP-890), as librdkafka 2.16 is: a
request to end a transaction does not name it, so a late one ends whichever is open. The coordinator decides before the
partitions know, and an end that it has decided may not be carried out (torn); then the transaction ends in each
partition as the next one there does (models/delivery/delivery.tla).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import TYPE_CHECKING, Final

from tests.schedules.kafka.log import Outcome

if TYPE_CHECKING:
    from cloud.committed import Committed
    from tests.schedules.kafka.cluster import Cluster
    from tests.schedules.scheduler import Scheduler

TRANSACTION_SECONDS: Final = (10.0, 20.0)
"""When an open transaction is aborted: after its time limit, at the coordinator's next look."""
MARKER_SECONDS: Final = (0.0002, 0.05)
"""How long after the decision a partition has the control record."""
LATE_MARKER_SECONDS: Final = (1.0, 40.0)
"""The same of a partition that the coordinator reaches late."""
DELAY_SECONDS: Final = (0.01, 0.06)
"""How long after the beginning of the next transaction a late request to commit one arrives."""
OTHER_SECONDS: Final = (0.01, 15.0)
"""How long after a torn commit another producer takes the transactional id."""
LOOK_SECONDS: Final = 0.1
"""After which a coordinator that could not reach a partition tries again."""
OFFSETS: Final = -1
"""The partition that holds the groups' offsets, which a transaction ends in as in any other."""


class Refusal(Enum):
    """Why a request of a transactional producer is refused."""

    FENCED = "a later producer has its id, or its transaction has ended otherwise"
    BUSY = "the end of the transaction before is not yet carried out"
    NOT_OPEN = "no transaction is open that has the partition"


class Tear(Enum):
    """In which partitions the end of a transaction is not carried out."""

    TOPIC = "topic"
    OFFSETS = "offsets"
    BOTH = "both"

    def takes(self, partition: int) -> bool:
        """Whether the end does not reach a partition."""
        return self is Tear.BOTH or (self is Tear.OFFSETS) == (partition == OFFSETS)


@dataclass(slots=True)
class _Held:
    """The state of a transactional id."""

    producer: int = 0
    """The latest; nobody has it where the coordinator has fenced a producer."""
    begun: int = 0
    """How many transactions have begun."""
    outcome: Outcome | None = None
    """Of the latest transaction of this producer; None where it has ended none."""
    is_open: bool = False
    partitions: set[int] = field(default_factory=set)
    """Of the open transaction."""
    due: dict[int, Outcome] = field(default_factory=dict)
    """The partitions that do not have the decided end yet."""


@dataclass(slots=True)
class Coordinator:
    """Answers the requests of transactional producers, each as a step without a thread."""

    _scheduler: Scheduler
    _cluster: Cluster
    _random: Random
    _ids: dict[str, _Held] = field(default_factory=dict)
    tears: list[Tear] = field(default_factory=list)
    """Of the next ends."""
    overtaken: list[Tear] = field(default_factory=list)
    """Of the next commits, after which another producer takes the id."""
    late: float = 0.0
    """Share of the partitions that the coordinator reaches late."""
    delayed: float = 0.0
    """Share of the requests to commit a transaction that arrive only after the next one has begun."""
    _delayed: dict[str, list[Callable[[], None]]] = field(default_factory=dict)
    """Such requests, by transactional id."""

    @property
    def is_open(self) -> bool:
        return any(held.is_open for held in self._ids.values())

    def init(self, transactional_id: str) -> int | Refusal:
        """Return a new holder of the id; an open transaction of an earlier one is aborted first."""
        held = self._ids.setdefault(transactional_id, _Held())
        if held.is_open:
            self._fence(transactional_id, held)
        if held.due:
            return Refusal.BUSY
        held.producer, held.outcome = self._cluster.new_producer(), None
        return held.producer

    def add(self, transactional_id: str, producer: int, partition: int) -> Refusal | None:
        """Make a partition one of the open transaction, which begins with its first one."""
        held = self._ids[transactional_id]
        if held.producer != producer:
            return Refusal.FENCED
        if held.due:
            return Refusal.BUSY
        if not held.is_open:
            held.is_open = True
            held.begun += 1
            number = held.begun
            for perform in self._delayed.pop(transactional_id, ()):
                self._scheduler.call(self._random.uniform(*DELAY_SECONDS), "late commit arrives", perform)
            self._scheduler.call(
                self._random.uniform(*TRANSACTION_SECONDS),
                "transaction expires",
                lambda: self._fence(transactional_id, held) if held.is_open and held.begun == number else None,
            )
        held.partitions.add(partition)
        return None

    def verify(self, transactional_id: str, producer: int, partition: int) -> Refusal | None:
        """Refuse the first record of a transaction in a partition of which the coordinator does not know."""
        held = self._ids[transactional_id]
        if held.producer != producer:
            return Refusal.FENCED
        if held.due:
            return Refusal.BUSY
        return None if held.is_open and partition in held.partitions else Refusal.NOT_OPEN

    def add_offsets(
        self, transactional_id: str, producer: int, group: str, offsets: Mapping[int, Committed]
    ) -> Refusal | None:
        """Have the open transaction commit a group's offsets."""
        refusal = self.add(transactional_id, producer, OFFSETS)
        if refusal is None:
            self._cluster.hold_offsets(transactional_id, group, offsets)
        return refusal

    def end(self, transactional_id: str, producer: int, outcome: Outcome) -> Refusal | None:
        """End a producer's open transaction; without one, return whether its latest one has ended so."""
        held = self._ids[transactional_id]
        if held.producer != producer:
            return Refusal.FENCED
        if held.is_open:
            self._decide(transactional_id, held, outcome)
            return None
        if held.outcome is not outcome:
            return Refusal.FENCED
        return Refusal.BUSY if held.due else None

    def delay(self, transactional_id: str, perform: Callable[[], None]) -> bool:
        """Keep a request to commit a transaction until the next one has begun, where that is due."""
        if self._random.random() >= self.delayed:
            return False
        self._delayed.setdefault(transactional_id, []).append(perform)
        return True

    def _take_over(self, transactional_id: str) -> None:
        """Have another producer take an id, and abort what hangs under it, but commit nothing."""
        producer = self.init(transactional_id)
        if isinstance(producer, Refusal):
            self._scheduler.call(LOOK_SECONDS, "another producer asks again", lambda: self._take_over(transactional_id))
            return
        for partition, place in enumerate(self._cluster.partitions):
            latest = place.latest_of(transactional_id)
            if latest is not None and latest.outcome is None:
                self._cluster.append_end(partition, transactional_id, producer, Outcome.ABORTED)

    def _fence(self, transactional_id: str, held: _Held) -> None:
        """Abort the open transaction, under an epoch that no producer has."""
        held.producer = self._cluster.new_producer()
        self._decide(transactional_id, held, Outcome.ABORTED)

    def _decide(self, transactional_id: str, held: _Held, outcome: Outcome) -> None:
        partitions = sorted(held.partitions)
        is_overtaken = outcome is Outcome.COMMITTED and bool(self.overtaken)
        tears = self.overtaken if is_overtaken else self.tears
        if is_overtaken:
            seconds = self._random.uniform(*OTHER_SECONDS)
            self._scheduler.call(seconds, "another producer begins", lambda: self._take_over(transactional_id))
        if tears:
            tear = tears.pop(0)
            partitions = [one for one in partitions if not tear.takes(one)]
            self._scheduler.note(f"kafka tears {transactional_id} {tear.value}")
        held.due = dict.fromkeys(partitions, outcome)
        held.is_open, held.partitions, held.outcome = False, set(), outcome
        self._scheduler.note(f"kafka decides {transactional_id} {outcome.value} {partitions}")
        for partition in partitions:
            is_late = self._random.random() < self.late
            seconds = self._random.uniform(*(LATE_MARKER_SECONDS if is_late else MARKER_SECONDS))
            self._carry_out_later(transactional_id, held, partition, seconds)

    def _carry_out_later(self, transactional_id: str, held: _Held, partition: int, seconds: float) -> None:
        def carry_out() -> None:
            if not self._cluster.serves(partition):
                self._carry_out_later(transactional_id, held, partition, LOOK_SECONDS)
                return
            outcome = held.due.pop(partition)
            if partition == OFFSETS:
                self._cluster.end_offsets(transactional_id, outcome)
            else:
                self._cluster.append_end(partition, transactional_id, held.producer, outcome)

        self._scheduler.call(seconds, "transaction ends in a partition", carry_out)
