"""Reads the records of the Kafka topic, as any consumer would."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import orjson
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from contract.topics import EVENTS
from simulators.errors import SimulatorError
from simulators.evidence.row import Row

ANSWER_SECONDS_MAX = 30.0
"""How long a broker may take to answer a request."""
PAUSE_SECONDS = 0.2
"""Before a request to a broker is repeated."""
READ_SECONDS_MAX = 120.0
_BATCH = 5_000
_GROUP = "oncegate-sim-reader"
_FIXED = {
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    # By default a consumer whose offset was deleted continues at the end without an error (decision 60).
    "auto.offset.reset": "error",
    # Errors are in our own exceptions; the client would log each attempt.
    "log_level": 2,
}
_TYPES = {
    **dict.fromkeys(("device", "type", "epoch", "fingerprint", "gateway"), str),
    **dict.fromkeys(("id", "boot"), int | str | None),
    "time": int | None,
    "data": dict | None,
    "sequence": int,
}
"""The types of a record's fields; a field that is absent counts as None."""

T = TypeVar("T")


RECORDS_FILE = "records.jsonl"
"""Where a run keeps the records for the time after its broker has ended."""


class SavedRecordsError(SimulatorError):
    """A line of the file is no record, or a part of one; the message names it."""


class TopicError(SimulatorError):
    """The topic could not be read."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic and its connection settings."""

    bootstrap_servers: str
    name: str = EVENTS
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Properties of librdkafka's client; some are secret."""
    answer_seconds_max: float = ANSWER_SECONDS_MAX

    def ends(self) -> dict[int, int]:
        """Return the current end offset of each partition."""
        with _consumer(self) as consumer:
            return {partition: end for partition, (_, end) in _watermarks(consumer, self).items()}


@dataclass(slots=True)
class Reading:
    """The records of a topic."""

    records: Iterator[Row]
    cut: frozenset[int] = frozenset()
    """The partitions whose first records were deleted."""
    malformed: int = 0
    """Number of records so far that are no events: other programs may write to the topic."""


@contextmanager
def reading(topic: Topic, devices: str = "", begun: Mapping[int, int] | None = None) -> Iterator[Reading]:
    """Open a topic for the records of devices with this name prefix, up to its current end; repeats included.

    `begun` has the first relevant offset of each partition, by default 0. A partition is cut where retention has
    deleted records from that offset on.
    """
    begun = begun or {}
    with _consumer(topic) as consumer:
        watermarks = _watermarks(consumer, topic)
        for partition, offset in begun.items():
            if watermarks.get(partition, (0, 0))[1] < offset:
                raise TopicError(f"{_place(topic)}: partition {partition} ended at offset {offset} before; recreated?")
        starts = {partition: max(low, begun.get(partition, 0)) for partition, (low, _) in watermarks.items()}
        consumer.assign([TopicPartition(topic.name, partition, offset) for partition, offset in starts.items()])
        cut = frozenset(partition for partition, (low, _) in watermarks.items() if low > begun.get(partition, 0))
        opened = Reading(iter(()), cut)
        opened.records = _rows(_read_to_ends(consumer, topic, len(starts)), devices, opened)
        yield opened


def read(topic: Topic) -> Iterator[Row]:
    """Yield all records of a topic.

    Raise TopicError where retention has deleted its first records, and at the end where a record was malformed.
    """
    with reading(topic) as opened:
        if opened.cut:
            raise TopicError(f"{_place(topic)}: retention has deleted the beginning of partitions {sorted(opened.cut)}")
        yield from opened.records
        if opened.malformed:
            raise TopicError(f"{_place(topic)}: {opened.malformed} malformed records")


def values(topic: Topic) -> Iterator[bytes]:
    """Yield the values of all records that a topic still has, whatever they are."""
    with _consumer(topic) as consumer:
        lowest = {partition: low for partition, (low, _) in _watermarks(consumer, topic).items()}
        consumer.assign([TopicPartition(topic.name, partition, low) for partition, low in lowest.items()])
        yield from (_bytes(message.value()) for message in _read_to_ends(consumer, topic, len(lowest)))


@contextmanager
def _consumer(topic: Topic) -> Iterator[Consumer]:
    """Open a consumer; its errors are raised as TopicError."""
    errors: deque[str] = deque(maxlen=1)

    def note_error(error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # the cause was reported before
            errors.append(error.str())

    given = {"group.id": _GROUP, **topic.properties, "bootstrap.servers": topic.bootstrap_servers}
    with failures(_place(topic)), closing(Consumer({**given, **_FIXED, "error_cb": note_error})) as consumer:
        try:
            yield consumer
        except KafkaException as error:
            consumer.poll(0)  # makes the client report its errors
            raise TopicError(f"{_place(topic)}: {', '.join((*errors, _reason(error)))}") from error


@contextmanager
def failures(place: str) -> Iterator[None]:
    """Raise errors of the client as TopicError with this place."""
    try:
        yield
    except KafkaException as error:
        raise TopicError(f"{place}: {_reason(error)}") from error


def _reason(error: KafkaException) -> str:
    reason = error.args[0] if error.args else error
    return reason.str() if isinstance(reason, KafkaError) else str(reason)


def answer(request: Callable[[], T], seconds_max: float) -> T:
    """Return the answer to a request, which is repeated after an error: a broker may just have started."""
    deadline = time.monotonic() + seconds_max
    while True:
        try:
            return request()
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(PAUSE_SECONDS)


def _watermarks(consumer: Consumer, topic: Topic) -> dict[int, tuple[int, int]]:
    """Return the first offset of each partition and its end offset."""
    seconds_max = topic.answer_seconds_max

    def request() -> dict[int, tuple[int, int]]:
        known = consumer.list_topics(topic.name, timeout=seconds_max).topics[topic.name]
        if known.error is not None:
            if known.error.code() == KafkaError.LEADER_NOT_AVAILABLE:
                raise KafkaException(known.error)
            raise TopicError(f"{_place(topic)}: {known.error}")
        places = [TopicPartition(topic.name, partition) for partition in known.partitions]
        return {one.partition: consumer.get_watermark_offsets(one, timeout=seconds_max) for one in places}

    return answer(request, seconds_max)


def _rows(messages: Iterator[Message], devices: str, opened: Reading) -> Iterator[Row]:
    """Yield the rows of devices with this name prefix, and count the malformed records."""
    for message in messages:
        try:
            row = row_of(_bytes(message.value()), message.partition(), message.offset(), message.timestamp()[1])
        except ValueError:
            opened.malformed += 1
            continue
        if row.device.startswith(devices):
            yield row


def _read_to_ends(consumer: Consumer, topic: Topic, partitions: int) -> Iterator[Message]:
    ends: set[int | None] = set()
    deadline = time.monotonic() + READ_SECONDS_MAX
    while len(ends) < partitions:
        if time.monotonic() > deadline:
            raise TopicError(f"{_place(topic)}: nothing for {READ_SECONDS_MAX:g} s, and its end is not reached")
        for message in consumer.consume(_BATCH, timeout=1.0):
            if (error := message.error()) is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                continue  # the client requires the name of a group, which is not used here
            if not _is_record(message, topic):
                ends.add(message.partition())
            else:
                deadline = time.monotonic() + READ_SECONDS_MAX
                yield message


def _is_record(message: Message, topic: Topic) -> bool:
    """Whether it is a record and not the end of a partition."""
    error = message.error()
    if error is None:
        return True
    if error.code() == KafkaError._AUTO_OFFSET_RESET:
        raise TopicError(
            f"{_place(topic)}: retention has deleted records of partition {message.partition()} while they were read: "
            "read it again"
        )
    if error.code() != KafkaError._PARTITION_EOF:
        raise TopicError(f"{_place(topic)}: {error}")
    return False


def row_of(value: bytes, partition: int | None, offset: int | None, at: int) -> Row:
    """Return the row of a record with this value; `at` is the time of its append, in milliseconds since 1970 UTC.

    Raise ValueError where the value is no event.
    """
    fields = orjson.loads(value)
    if not isinstance(fields, dict) or not all(isinstance(fields.get(name), type_) for name, type_ in _TYPES.items()):
        raise ValueError("no event")
    return Row(
        device=fields["device"],
        type=fields["type"],
        id=fields.get("id"),
        time=fields.get("time"),
        data=fields.get("data"),
        boot=fields.get("boot"),
        epoch=fields["epoch"],
        sequence=fields["sequence"],
        partition=partition,
        offset=offset,
        fingerprint=fields["fingerprint"],
        at=at,
        gateway=fields["gateway"],
    )


def _bytes(value: str | bytes | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""


def _place(topic: Topic) -> str:
    return f"kafka: {topic.name} at {topic.bootstrap_servers}"


def saving(records: Iterable[Row], file: Path) -> Iterator[Row]:
    """Yield the records, and write each of them to the file as a line."""
    with file.open("wb") as lines:
        for record in records:
            lines.write(orjson.dumps(tuple(record), option=orjson.OPT_APPEND_NEWLINE))
            yield record


def read_saved(file: Path) -> Iterator[Row]:
    """Yield the records in a file; raise SavedRecordsError."""
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                row = Row(*orjson.loads(line))
            except (ValueError, TypeError) as error:
                raise SavedRecordsError(f"{file}, line {number}: no record: {error} in {line[:200]!r}") from error
            yield row
