"""Kafka's clients as the agent uses them, on the simulated cluster."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Message, TopicPartition

from tests.schedules.kafka.cluster import Cluster, OutOfOrder
from tests.schedules.kafka.coordinator import Refusal
from tests.schedules.kafka.log import Record
from tests.schedules.scheduler import Process, Scheduler
from tests.schedules.threads import Answer

LINGER_SECONDS: Final = 0.005
RETRY_SECONDS: Final = 2.0
"""After which a request without an answer is sent again."""
FETCH_SECONDS: Final = 0.1
OUT_OF_ORDER: Final = KafkaError(KafkaError._FATAL, "out of order sequence", fatal=True)
FENCED: Final = KafkaError(KafkaError._FENCED, "fenced by a later producer", fatal=True)
ENDED: Final = KafkaError(KafkaError._FATAL, "unable to produce")
NOT_OPEN: Final = KafkaError(KafkaError.INVALID_TXN_STATE, "no such transaction")
_ERRORS: Final[Mapping[object, KafkaError]] = {Refusal.FENCED: FENCED, Refusal.NOT_OPEN: NOT_OPEN}

Delivered = Callable[[KafkaError | None, Message], None]


class _Client:
    """A client of the process that opens it; nothing reaches it once that is killed."""

    def __init__(self, scheduler: Scheduler, cluster: Cluster, _: Mapping[str, Any]) -> None:
        assert scheduler.running is not None
        self._scheduler = scheduler
        self._cluster = cluster
        self._process: Process = scheduler.running.process

    def _ask(self, what: str, perform: Callable[[], Any], seconds: float, partition: int | None = None) -> Answer[Any]:
        """Return a future of the answer, which fails when the time is over."""
        future: Answer[Any] = Answer(self._scheduler)
        self._scheduler.pause(what)
        answered = self._alive(future.set_result)
        self._cluster.request(f"{self._process.name} {what}", perform, answered, partition=partition)
        timed_out = KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer"))
        self._scheduler.call(seconds, f"{what} expires", lambda: future.set_exception(timed_out))
        return future

    def _alive(self, then: Callable[[Any], None]) -> Callable[[Any], None]:
        return lambda result: then(result) if self._process.alive else None


@dataclass(slots=True)
class _Sent:
    """A record that was handed over and is not reported."""

    record: Record
    delivered: Delivered
    expires: float


@dataclass(slots=True)
class _Line:
    """The records to one partition, in order; one request at a time."""

    waiting: deque[_Sent] = field(default_factory=deque)
    request: list[_Sent] = field(default_factory=list)
    count: int = 0
    is_due: bool = False


class Producer(_Client):
    def __init__(self, scheduler: Scheduler, cluster: Cluster, config: Mapping[str, Any]) -> None:
        super().__init__(scheduler, cluster, config)
        self._id = cluster.new_producer()
        self._transactional_id: str = config.get("transactional.id", "")
        self._lines: dict[int, _Line] = {}
        self._reports: deque[tuple[Delivered, KafkaError | None, Message]] = deque()
        self._message_seconds = int(config["message.timeout.ms"]) / 1000
        self._has_ended = False
        self._fatal: KafkaError | None = None
        """The error that has ended it, until the next poll raises it: the client tells no callback of it."""

    def __len__(self) -> int:
        return len(self._reports) + sum(len(line.waiting) + len(line.request) for line in self._lines.values())

    def produce(
        self, topic: str, value: bytes, key: bytes, partition: int, on_delivery: Delivered, headers: Any
    ) -> None:
        if self._has_ended:
            raise KafkaException(ENDED)
        number = self._cluster.partition_of(key) if partition < 0 else partition
        line = self._lines.setdefault(number, _Line())
        record = Record(key, value, tuple(headers), self._id, line.count, self._transactional_id)
        line.count += 1
        line.waiting.append(_Sent(record, on_delivery, self._scheduler.now + self._message_seconds))
        if not line.is_due:
            line.is_due = True
            self._scheduler.call(LINGER_SECONDS, "linger", lambda: self._send(number))

    def poll(self, timeout: float) -> int:
        self._scheduler.pause("poll")
        self._expire()
        error, self._fatal = self._fatal, None
        if error is not None:
            raise KafkaException(error)
        served = len(self._reports)
        for _ in range(served):
            delivered, error, message = self._reports.popleft()
            delivered(error, message)
        return served

    def purge(self) -> None:
        self._has_ended = True
        for number in self._lines:
            self._fail(number, KafkaError(KafkaError._PURGE_QUEUE, "purged"))

    def _send(self, number: int) -> None:
        line = self._lines[number]
        line.is_due = False
        if self._has_ended or line.request or not line.waiting or not self._process.alive:
            return
        line.request = list(line.waiting)
        line.waiting.clear()
        self._attempt(number, line.request)

    def _attempt(self, number: int, request: list[_Sent]) -> None:
        """Send a request, and again until there is an answer, or its records have expired."""
        line = self._lines[number]
        if line.request is not request or not self._process.alive:
            return
        records = [sent.record for sent in request]
        self._cluster.request(
            f"{self._process.name} produces {number}",
            lambda: self._cluster.append(number, records),
            self._alive(lambda answer: self._settle(number, request, answer)),
            partition=number,
        )
        self._scheduler.call(RETRY_SECONDS, "retry", lambda: self._attempt(number, request))

    def _settle(self, number: int, request: list[_Sent], answer: int | OutOfOrder | Refusal) -> None:
        line = self._lines[number]
        if line.request is not request or answer is Refusal.BUSY:
            return
        if not isinstance(answer, int):
            error = _ERRORS.get(answer, OUT_OF_ORDER)
            self._end_by(error)
            self._fail(number, error)
            return
        line.request = []
        for place, sent in enumerate(request):
            self._reports.append((sent.delivered, None, Message(partition=number, offset=answer + place)))
        self._send(number)

    def _end_by(self, error: KafkaError) -> None:
        self._has_ended, self._fatal = True, error

    def _expire(self) -> None:
        now = self._scheduler.now
        for number, line in self._lines.items():
            if any(sent.expires < now for sent in (*line.request, *line.waiting)):
                self._fail(number, KafkaError(KafkaError._MSG_TIMED_OUT, "timed out"))

    def _fail(self, number: int, error: KafkaError) -> None:
        """Report all records to a partition as failed."""
        line = self._lines[number]
        failed = Message(partition=number, error=error)
        self._reports.extend((one.delivered, error, failed) for one in (*line.request, *line.waiting))
        line.request = []
        line.waiting.clear()


class AdminClient(_Client):
    """Describes the topic and lists offsets; each answer is as of some time after the request."""

    def describe_topics(self, topics: Any, request_timeout: float) -> dict[str, Answer[Any]]:
        cluster = self._cluster
        name: str = topics.topic_names[0]

        def perform() -> SimpleNamespace:
            partitions = [SimpleNamespace(id=number) for number in range(len(cluster.partitions))]
            return SimpleNamespace(name=name, topic_id=cluster.topic_id, partitions=partitions)

        return {name: self._ask("describes", perform, request_timeout)}

    def list_offsets(
        self, specs: Mapping[TopicPartition, Any], isolation_level: Any, request_timeout: float
    ) -> dict[TopicPartition, Answer[Any]]:
        is_stable = isolation_level is IsolationLevel.READ_COMMITTED
        return {
            place: self._ask(
                "lists", partial(self._end_of, place.partition, is_stable), request_timeout, place.partition
            )
            for place in specs
        }

    def poll(self, timeout: float) -> int:
        return 0

    def _end_of(self, number: int, is_stable: bool) -> SimpleNamespace:
        place = self._cluster.partitions[number]
        return SimpleNamespace(offset=place.stable_end if is_stable else place.end, leader_epoch=place.leader_epoch)


class Consumer(_Client):
    """Reads a group's offsets, and single committed records; it is in no group."""

    def __init__(self, scheduler: Scheduler, cluster: Cluster, config: Mapping[str, Any]) -> None:
        super().__init__(scheduler, cluster, config)
        self._group: str = config["group.id"]
        self._places: dict[int, int] = {}
        self._messages: deque[Message] = deque()

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        def perform() -> list[TopicPartition]:
            return [self._committed(place) for place in partitions]

        answer: list[TopicPartition] = self._ask("committed", perform, timeout).result()
        return answer

    def assign(self, partitions: list[TopicPartition]) -> None:
        self._places = {place.partition: place.offset for place in partitions}
        for number, offset in self._places.items():
            self._fetch(number, offset)

    def poll(self, timeout: float) -> Message | None:
        self._scheduler.pause("poll")
        return self._messages.popleft() if self._messages else None

    def consumer_group_metadata(self) -> str:
        return self._group

    def unassign(self) -> None:
        self._places = {}
        self._messages.clear()

    def close(self) -> None:
        self.unassign()

    def _committed(self, place: TopicPartition) -> TopicPartition:
        found = self._cluster.committed(self._group, place.partition)
        if found is None:
            return TopicPartition(place.topic, place.partition, -1001)
        epoch = {} if found.leader_epoch is None else {"leader_epoch": found.leader_epoch}
        return TopicPartition(place.topic, place.partition, found.offset, found.metadata, **epoch)

    def _fetch(self, number: int, offset: int) -> None:
        """Fetch a record, or the first visible one behind it, and again while there is none."""
        if self._places.get(number) != offset or not self._process.alive:
            return
        self._cluster.request(
            f"{self._process.name} fetches {number} {offset}",
            lambda: self._read(number, offset),
            self._alive(self._take),
            partition=number,
        )
        self._scheduler.call(FETCH_SECONDS, "fetch", lambda: self._fetch(number, offset))

    def _read(self, number: int, offset: int) -> Message | None:
        place = self._cluster.partitions[number]
        if offset < place.low or offset > place.end:
            error = KafkaError(KafkaError._AUTO_OFFSET_RESET, "no such offset")
            return Message(partition=number, offset=offset, error=error)
        stable = place.stable_end
        if offset > stable:
            return None
        at = next((at for at in range(offset, stable) if place.is_visible(at)), None)
        if at is None:
            return Message(partition=number, offset=stable, error=KafkaError(KafkaError._PARTITION_EOF, "end"))
        found = place.log[at]
        return Message(partition=number, offset=at, headers=list(found.headers), leader_epoch=found.leader_epoch)

    def _take(self, message: Message | None) -> None:
        if message is not None and message.partition() in self._places:
            self._messages.append(message)
