"""A simulated Kafka cluster: one topic, its leaders and logs, a group's offsets, and an unreliable way to them.

Its steps are those of models/path/path.tla: append, election, truncation, a topic made anew, retention, receipts.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Final, TypeVar
from zlib import crc32

from cloud.committed import Committed
from tests.schedules.kafka.coordinator import Coordinator, Refusal
from tests.schedules.kafka.log import Outcome, Partition, Record
from tests.schedules.scheduler import Scheduler

TOPIC: Final = "oncegate.events"
GROUP: Final = "oncegate-cloud"
"""Of the job."""
WAY_SECONDS: Final = (0.0002, 0.02)
"""How long a request or an answer takes."""
LATE_SECONDS: Final = (1.0, 20.0)
"""The same of one that is late: whoever has sent it has given it up by then, or not."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OutOfOrder:
    """The broker lacks the record before the first of a request."""


class Cluster:
    def __init__(self, scheduler: Scheduler, random: Random, wall_ms: Callable[[], int], partitions: int) -> None:
        self._scheduler = scheduler
        self._random = random
        self._wall_ms = wall_ms
        self._topics = 0
        self._producers = 0
        self.lost_share = self.late_share = 0.0
        """Of the requests and answers."""
        self.is_up = True
        self.topic_id = self._new_id()
        self.partitions = [Partition() for _ in range(partitions)]
        self.coordinator = Coordinator(scheduler, self, random)
        self.groups: dict[str, dict[int, Committed]] = {}
        self.loading: Random | None = None
        """What draws the answers of a coordinator that loads the groups' offsets a second time, while it serves."""
        self._earlier: dict[tuple[str, int], list[Committed]] = {}
        """All that a group has ever committed of a partition."""
        self._held_offsets: dict[str, tuple[str, Mapping[int, Committed]]] = {}
        """By transactional id: the group and its offsets that wait for the end of a transaction."""
        self.leaderless: set[int] = set()
        """Partitions without a leader."""
        self.has_lost = False
        """Whether the log is no longer all that was ever appended."""
        self.appended = 0

    def new_producer(self) -> int:
        self._producers += 1
        return self._producers

    def serves(self, partition: int) -> bool:
        return self.is_up and partition not in self.leaderless

    def request(
        self,
        what: str,
        perform: Callable[[], T],
        answered: Callable[[T], None],
        lost: Callable[[], None] = lambda: None,
        partition: int | None = None,
    ) -> None:
        """Send a request; it may get lost, or be late, and so may its answer.

        `lost` is called where nothing of it is on the way any more; `partition` is that whose leader it is sent to.
        """

        def arrive() -> None:
            if self.is_up and (partition is None or self.serves(partition)):
                result = perform()
                self._send(f"{what} answered", lambda: answered(result), lost)
            else:
                lost()

        self._send(what, arrive, lost)

    def partition_of(self, key: bytes) -> int:
        return crc32(key) % len(self.partitions)

    def append(self, partition: int, records: list[Record]) -> int | OutOfOrder | Refusal:
        """Append records; return the offset of the first, which a retry gets, too."""
        place = self.partitions[partition]
        producer, first, name = records[0].producer, records[0].number, records[0].transactional_id
        refusal = self._refuse(place, partition, records[0]) if name else None
        if refusal is not None:
            return refusal
        last = next((one.number for one in reversed(place.log) if _is_of(one, producer)), None)
        if last is not None and first <= last:
            return next(
                (offset for offset, one in enumerate(place.log) if _is_of(one, producer) and one.number == first),
                OutOfOrder(),
            )
        if last is not None and first != last + 1:
            return OutOfOrder()
        base, now = place.end, self._wall_ms()
        place.log += [replace(record, leader_epoch=place.leader_epoch, time_ms=now) for record in records]
        self.appended += len(records)
        self._scheduler.note(f"kafka appends {partition} {base} {len(records)}")
        return base

    def append_end(self, partition: int, transactional_id: str, producer: int, outcome: Outcome) -> None:
        """Append the control record that ends a transaction in a partition."""
        place = self.partitions[partition]
        end = Record(b"", b"", (), producer, 0, transactional_id, outcome, place.leader_epoch, self._wall_ms())
        place.log.append(end)
        self._scheduler.note(f"kafka ends {partition} {place.end - 1} {transactional_id} {outcome.value}")

    def commit_offsets(self, offsets: Mapping[int, Committed], group: str = GROUP) -> None:
        self.groups.setdefault(group, {}).update(offsets)
        for number, one in offsets.items():
            self._earlier.setdefault((group, number), []).append(one)
        committed = sorted((number, one.offset) for number, one in offsets.items())
        self._scheduler.note(f"kafka commits {group} {committed}")

    def committed(self, group: str, partition: int) -> Committed | None:
        """Return what a group has committed; while a coordinator loads again, what it had committed at any moment.

        So Kafka 4.3 answers where it has loaded the offsets under two leader epochs of one start.
        """
        earlier = self._earlier.get((group, partition))
        if self.loading is not None and earlier:
            return self.loading.choice(earlier)
        return self.groups.get(group, {}).get(partition)

    def hold_offsets(self, transactional_id: str, group: str, offsets: Mapping[int, Committed]) -> None:
        """Keep offsets of a group until a transaction has ended."""
        self._held_offsets[transactional_id] = group, offsets

    def end_offsets(self, transactional_id: str, outcome: Outcome) -> None:
        """Commit the offsets that wait for a transaction, or discard them."""
        group, offsets = self._held_offsets.pop(transactional_id, ("", {}))
        if offsets and outcome is Outcome.COMMITTED:
            self.commit_offsets(offsets, group)

    def elect(self, partition: int) -> None:
        """Elect a leader that has everything."""
        self.partitions[partition].leader_epoch += 1

    def truncate(self, partition: int, end: int) -> None:
        """Elect a leader that lacks the end of the log: an unclean election, or a power cut of the only broker.

        No transaction loses its control record alone, which would hold back readers until the next one there.
        """
        place = self.partitions[partition]
        place.leader_epoch += 1
        end = min(end, Partition(log=place.log[:end]).stable_end) if place.stable_end >= end else end
        if place.low <= end < place.end:
            del place.log[end:]
            self.has_lost = True
        self._scheduler.note(f"kafka truncated {partition} {place.end}")

    def recreate(self, *, keeps_offsets: bool) -> None:
        """Delete the topic and make it anew; the brokers delete its groups' offsets, at once or much later."""
        if not keeps_offsets:
            self.groups.clear()
        self.topic_id = self._new_id()
        self.partitions = [Partition() for _ in self.partitions]
        self.has_lost = True
        self._scheduler.note("kafka recreated")

    def expire(self, partition: int, low: int) -> None:
        """Delete the beginning of the log."""
        place = self.partitions[partition]
        place.low = max(place.low, min(low, place.end))
        self._scheduler.note(f"kafka expired {partition} {place.low}")

    def _refuse(self, place: Partition, partition: int, first: Record) -> Refusal | None:
        """Refuse the records of a fenced producer, and those whose transaction the coordinator does not know.

        The leader knows producers by the records that it has, and asks the coordinator before a transaction begins.
        """
        latest = place.latest_of(first.transactional_id)
        if latest is not None and latest.producer > first.producer:
            return Refusal.FENCED
        if latest is not None and _is_of(latest, first.producer):
            return None
        return self.coordinator.verify(first.transactional_id, first.producer, partition)

    def _send(self, what: str, arrive: Callable[[], None], lost: Callable[[], None]) -> None:
        fate = self._random.random()
        if fate < self.lost_share:
            lost()
            return
        is_late = fate < self.lost_share + self.late_share
        self._scheduler.call(self._random.uniform(*(LATE_SECONDS if is_late else WAY_SECONDS)), what, arrive)

    def _new_id(self) -> str:
        self._topics += 1
        return f"topic-{self._topics:016d}"


def _is_of(record: Record, producer: int) -> bool:
    """Whether it is a producer's record, and no control record."""
    return record.producer == producer and record.outcome is None
