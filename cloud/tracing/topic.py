"""What the topic and the group know: records by their headers, and committed offsets. No group is joined."""

import time
from collections.abc import Callable, Mapping
from datetime import datetime

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from cloud.committed import objection
from cloud.errors import JobError
from cloud.stream.group_kafka import GroupKafka, headers_of
from cloud.tracing.facts import Label, Record, Span, TopicSearch, Wanted
from contract.record import STATEMENT, read_stated_label

ANSWER_SECONDS_MAX = 30.0
SEARCH_SECONDS_MAX = 120.0
FOUND_MAX = 1_000
"""The largest number of records that are kept of one search."""
_FETCH_RECORDS, _WAIT_SECONDS = 10_000, 0.5


class TracedTopic:
    """A topic, and the receipts of a group."""

    def __init__(self, bootstrap_servers: str, topic: str, group: str, properties: Mapping[str, str]) -> None:
        self._name = topic
        self._group = group
        try:
            self._kafka = GroupKafka(bootstrap_servers, topic, properties)
            self._client = Consumer(
                {
                    **properties,
                    "bootstrap.servers": bootstrap_servers,
                    "group.id": group,  # only a subscription would join it
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "isolation.level": "read_committed",
                    "auto.offset.reset": "earliest",
                    "enable.partition.eof": True,
                }
            )
        except KafkaException as error:  # a property that the client does not know
            raise JobError(f"Kafka's client: {error.args[0].str()}") from error

    def close(self) -> None:
        self._client.close()

    def search(self, wanted: Wanted | Span, records_max: int) -> TopicSearch:
        """Read the latest records, at most so many, or those since the span's begin, and return those that match."""
        topic_id = self._kafka.topic_id()
        try:
            ends = self._ends(wanted.since if isinstance(wanted, Span) else None, records_max)
            found, earliest, finished = self._read(ends, _matching(wanted))
        except KafkaException as error:
            raise JobError(f"topic {self._name}: {error.args[0].str()}") from error
        return TopicSearch(
            self._name,
            topic_id,
            sorted(found, key=lambda one: (one.appended, one.partition, one.offset)),
            ends,
            earliest,
            finished,
        )

    def receipts(self, search: TopicSearch, table: str) -> dict[int, int | str]:
        """Return by partition the offset that the group has committed, or why it is no receipt of the table."""
        committed = self._kafka.committed(self._group, search.ends)
        return {p: objection(one, table, search.topic_id) or one.offset for p, one in committed.items()}

    def _ends(self, since: int | None, records_max: int) -> dict[int, tuple[int, int, int]]:
        """Return, by partition, the earliest offset, the first one to read, and the end."""
        places = [TopicPartition(self._name, partition) for partition in self._kafka.partitions()]
        marks = {p.partition: self._client.get_watermark_offsets(p, timeout=ANSWER_SECONDS_MAX) for p in places}
        starts = {partition: low for partition, (low, _) in marks.items()}
        if since is not None:
            times = [TopicPartition(self._name, place.partition, max(0, since)) for place in places]
            for answer in self._client.offsets_for_times(times, timeout=ANSWER_SECONDS_MAX):
                high = marks[answer.partition][1]
                starts[answer.partition] = max(starts[answer.partition], answer.offset if answer.offset >= 0 else high)
        total = sum(high - starts[partition] for partition, (_, high) in marks.items())
        share = min(1.0, records_max / total) if total else 1.0
        return {
            partition: (low, high - int((high - starts[partition]) * share), high)
            for partition, (low, high) in marks.items()
        }

    def _read(
        self, ends: Mapping[int, tuple[int, int, int]], matches: Callable[[Record], bool]
    ) -> tuple[list[Record], int | None, bool]:
        """Return the matching records, the time of the earliest that was read, and whether all ends were reached."""
        open_ = {partition for partition, (_, first, end) in ends.items() if first < end}
        self._client.assign([TopicPartition(self._name, partition, ends[partition][1]) for partition in open_])
        found, earliest = list[Record](), None
        deadline = time.monotonic() + SEARCH_SECONDS_MAX
        while open_ and time.monotonic() < deadline and len(found) < FOUND_MAX:
            for message in self._client.consume(_FETCH_RECORDS, _WAIT_SECONDS):
                partition, offset = message.partition() or 0, message.offset() or 0
                error = message.error()
                if error is not None:
                    if error.code() != KafkaError._PARTITION_EOF:
                        raise KafkaException(error)
                    open_.discard(partition)
                    continue
                if offset >= ends[partition][2] - 1:
                    open_.discard(partition)
                record = read_record(message)
                earliest = min(earliest or record.appended, record.appended)
                if matches(record):
                    found.append(record)
        return found[:FOUND_MAX], earliest, not open_


def read_record(message: Message) -> Record:
    """Return a record by its headers; what is malformed is None."""
    headers = {name: value for name, value in headers_of(message) if value is not None}
    return Record(
        message.partition() or 0,
        message.offset() or 0,
        message.timestamp()[1],
        _text(message.key()),
        _text(headers.get("ce_id")) or None,
        _label(headers.get(STATEMENT, b"")),
        _time(_text(headers.get("ce_time"))),
    )


def _matching(wanted: Wanted | Span) -> Callable[[Record], bool]:
    if isinstance(wanted, Span):
        span = wanted
        return lambda one: one.device == span.device and span.has(one.appended if one.time is None else one.time)
    if wanted.label is not None:
        return lambda one: one.label == wanted.label
    return lambda one: one.fingerprint == wanted.fingerprint


def _label(statement: bytes) -> Label | None:
    try:
        gateway, label = read_stated_label(statement)
    except ValueError:
        return None
    return Label(gateway, label.epoch, label.sequence)


def _time(text: str) -> int | None:
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        return None


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")
