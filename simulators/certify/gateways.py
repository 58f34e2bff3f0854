"""Gateways that send events, and forget a batch when the agent's own poller believes a receipt above it."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random, SystemRandom
from typing import TYPE_CHECKING, cast

from confluent_kafka import KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from agent.clock import SystemClock
from agent.config.settings import KafkaSettings, ReceiptSettings
from agent.forward.errors import SessionError
from agent.forward.kafka.client import LastError
from agent.forward.kafka.topic import TopicView, TopicWatch
from agent.forward.receipts.poller import ReceiptPoller
from agent.store.port import Batch, LabelRange, Offsets
from agent.telemetry.links import LinkName, Links
from contract.event import Event
from contract.record import STATEMENT
from simulators.certify.records import Record, RecordSource, now, with_header, without_header
from simulators.errors import RunError

if TYPE_CHECKING:
    from agent.store.port import Outbox

PARTITIONS = 3
POLL_SECONDS = 0.05
"""Far more often than real gateways: a consumer is killed directly after a receipt."""
ANSWER_SECONDS_MAX = 60.0
_BATCH_EVENTS = 25
_DEVICES = 12
_REPEATED, _LATER, _REUSED = 0.1, 0.1, 0.02
"""Shares of the events that are in the topic again, that have words and headers of a later release, or a used id."""

Place = tuple[int, int]
"""Partition and offset of a record."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where gateways write, and read receipts: those of the group with the topic's name."""

    bootstrap_servers: str
    topic: str


@dataclass(frozen=True, slots=True)
class Ears:
    """What is told of each event, by its fingerprint; `believed` comes from the pollers' threads."""

    sent: Callable[[str, Place], None]
    believed: Callable[[Sequence[str]], None]


class SimulatedGateway:
    """One gateway: its events, and the part of the agent's outbox that the poller of receipts uses."""

    def __init__(self, name: str, target: Target, ears: Ears) -> None:
        self._gateway = RecordSource(name, f"{SystemRandom().getrandbits(64):016x}")
        self._target = target
        self._ears = ears
        self.records: list[Record] = []
        """By position, from 1 on, which is also the label's sequence."""
        self._lock = threading.Lock()
        self._forwarded: list[Batch] = []
        self._returned: list[Batch] = []
        self.returned_events = 0
        self._facts: dict[str, str] = {}
        self._links = Links(SystemClock())
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"receipts of {name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the poller."""
        self._stop.set()
        self._thread.join(ANSWER_SECONDS_MAX)

    def send(self, events: Sequence[Event], random: Random, partition: int | None = None) -> None:
        """Accept events and send them in batches; return once Kafka has them."""
        first = len(self.records) + 1
        self.records += [_of_later(one) if random.random() < _LATER else one for one in self._gateway.records(events)]
        self._forward(first, len(self.records), partition)

    def send_again(self) -> None:
        """Send again what was returned."""
        if self._error is not None:
            raise self._error
        with self._lock:
            returned, self._returned = self._returned, []
        for batch in returned:
            self._forward(batch.first, batch.last)

    @property
    def outstanding(self) -> int:
        """The number of events without a receipt."""
        with self._lock:
            return sum(batch.last - batch.first + 1 for batch in (*self._forwarded, *self._returned))

    @property
    def held(self) -> str:
        """Why receipts do not count; empty while they do."""
        report = self._links.reports().get(LinkName.RECEIPTS)
        return "" if report is None or report.state.up else f"receipts={report.state.name}: {report.reason}"

    def forwarded(self) -> Sequence[Batch]:
        """Return the batches that wait for their receipt."""
        with self._lock:
            return list(self._forwarded)

    def mark_processed(self, batches: Sequence[Batch]) -> None:
        """Forget batches: from here on only the result has their events."""
        self._ears.believed([mark for batch in batches for mark in self._fingerprints(batch)])
        self._take(batches)

    def return_batches(self, batches: Sequence[Batch]) -> None:
        """Have batches sent again."""
        self._take(batches)
        with self._lock:
            self._returned += batches
            self.returned_events += sum(batch.last - batch.first + 1 for batch in batches)

    def labels(self, first: int, last: int) -> Sequence[LabelRange]:
        """Return the labels of positions."""
        return [LabelRange(self._gateway.epoch, first, last)]

    def fact(self, name: str) -> str | None:
        """Return what was noted, such as the pinned table."""
        return self._facts.get(name)

    def set_fact(self, name: str, value: str) -> None:
        """Note a fact."""
        self._facts[name] = value

    def _run(self) -> None:
        kafka = KafkaSettings(self._target.bootstrap_servers, self._target.topic, "at-least-once", {})
        receipts = ReceiptSettings(group=self._target.topic, poll_seconds=POLL_SECONDS)
        outbox = cast("Outbox", self)  # the poller uses no more of it than is here
        try:
            ReceiptPoller(kafka, receipts, self._gateway.name, outbox, self._links, Random()).run(self._stop)
        except BaseException as error:  # noqa: BLE001  # raised by `send_again`, in the main thread
            self._error = error

    def _forward(self, first: int, last: int, partition: int | None = None) -> None:
        seen = view(self._target)  # nobody starts or ends brokers meanwhile
        all_places = produce(self._target, self.records[first - 1 : last], partition)
        for begin in range(first, last + 1, _BATCH_EVENTS):
            batch_last = min(last, begin + _BATCH_EVENTS - 1)
            places = all_places[begin - first : batch_last + 1 - first]
            offsets: dict[int, Offsets] = {}
            for number, offset in places:
                one = Offsets(offset, offset, seen.ends[number].leader_epoch)
                offsets[number] = offsets[number].united(one) if number in offsets else one
            batch = Batch(begin, batch_last, seen.id, offsets)
            for mark, place in zip(self._fingerprints(batch), places, strict=True):
                self._ears.sent(mark, place)
            with self._lock:
                self._forwarded.append(batch)

    def _fingerprints(self, batch: Batch) -> Iterator[str]:
        return (fingerprint_of(record) for record in self.records[batch.first - 1 : batch.last])

    def _take(self, batches: Sequence[Batch]) -> None:
        with self._lock:
            self._forwarded = [one for one in self._forwarded if one not in batches]


@dataclass(slots=True)
class TopicTraffic:
    """Two gateways that hear the same devices, and what else is in a topic."""

    target: Target
    ears: Ears
    random: Random
    malformed: dict[Place, str] = field(default_factory=dict)
    """The malformed records, each with its `ce_id` or an empty text."""
    gateways: list[SimulatedGateway] = field(init=False)
    _ids: int = 0

    def __post_init__(self) -> None:
        self.gateways = [SimulatedGateway(f"certify-{name}", self.target, self.ears) for name in ("a", "b")]

    def close(self) -> None:
        """End the gateways."""
        for gateway in self.gateways:
            gateway.close()

    def burst(self, count: int, partition: int | None = None) -> None:
        """Send new events, some of them by both gateways, and some of the earlier ones again."""
        first, second = self.gateways
        events = self._events(count)
        first.send(events, self.random, partition)
        both = self.random.sample(events, int(count * _REPEATED))
        second.send([*self._events(count), *both], self.random, partition)
        again = [self.random.choice(one.records) for one in self.gateways for _ in range(int(count * _REPEATED))]
        for record, place in zip(again, produce(self.target, again, partition), strict=True):
            self.ears.sent(fingerprint_of(record), place)

    def send_again(self) -> None:
        """Send what the gateways were told to send again."""
        for gateway in self.gateways:
            gateway.send_again()

    @property
    def outstanding(self) -> int:
        """The number of events without a receipt."""
        return sum(gateway.outstanding for gateway in self.gateways)

    def _events(self, count: int) -> list[Event]:
        """Return events of several devices, some of which have begun to count again."""
        events = []
        for number in range(self._ids, self._ids + count):
            device = f"urn:dev:mac:02005e{self.random.randrange(_DEVICES):06x}"
            reused = self.random.random() < _REUSED
            data = {"temperature": self.random.uniform(15, 25)}
            events.append(Event(device, id=self.random.randrange(10) if reused else 10 + number, time=now(), data=data))
        self._ids += count
        return events

    def abort(self, aborted: set[str]) -> None:
        """Send events in a transaction that is aborted, and add their fingerprints."""
        settings = {"bootstrap.servers": self.target.bootstrap_servers, "log_level": 2}
        producer = Producer({**settings, "transactional.id": self.target.topic})
        producer.init_transactions(ANSWER_SECONDS_MAX)
        producer.begin_transaction()
        for record in RecordSource("certify-c", f"{self.random.getrandbits(64):016x}").records(self._events(10)):
            headers: list[tuple[str, str | bytes | None]] = list(record.headers)
            producer.produce(self.target.topic, record.value, record.key, headers=headers)
            aborted.add(fingerprint_of(record))
        producer.flush(ANSWER_SECONDS_MAX)
        producer.abort_transaction(ANSWER_SECONDS_MAX)

    def send_malformed(self) -> None:
        """Send records that are no events."""
        whole = RecordSource("certify-c", f"{self.random.getrandbits(64):016x}").records(self._events(4))
        damaged = [
            Record(b"nobody", b"no event", []),
            without_header(whole[0], "ce_id"),
            with_header(whole[1], "ce_id", b"no fingerprint"),
            with_header(whole[2], STATEMENT, b"-"),
            replace(whole[3], value=whole[3].value[:-9]),
        ]
        for record, place in zip(damaged, produce(self.target, damaged), strict=True):
            self.malformed[place] = dict(record.headers).get("ce_id", b"").decode()


def fingerprint_of(record: Record) -> str:
    """Return the fingerprint, as `ce_id` has it."""
    return dict(record.headers)["ce_id"].decode()


def view(target: Target) -> TopicView:
    """Return the topic's id and its partitions' leaders; raise RunError where they do not answer."""
    watch, stop = TopicWatch(_admin(target), target.topic, LastError()), threading.Event()
    for _ in range(10):
        try:
            seen = watch.read_view(stop)
        except SessionError:
            stop.wait(1.0)
        else:
            if len(seen.ends) == PARTITIONS:
                return seen
            stop.wait(0.1)
    raise RunError(f"topic {target.topic}: its partitions do not answer")


def produce(target: Target, records: Iterable[Record], partition: int | None = None) -> list[Place]:
    """Produce records, and return their places once Kafka has all of them."""
    # A client for each call, which knows of no earlier topic of this name; what it repeats is one more duplicate.
    producer = Producer({"bootstrap.servers": target.bootstrap_servers, "log_level": 2})
    given = list(records)
    places: list[Place | None] = [None] * len(given)

    def noting(number: int) -> Callable[[object, Message], None]:
        def note(error: object, message: Message) -> None:
            if error is None:
                places[number] = (message.partition() or 0, message.offset() or 0)

        return note

    for number, record in enumerate(given):
        where = -1 if partition is None else partition
        headers: list[tuple[str, str | bytes | None]] = list(record.headers)
        producer.produce(target.topic, record.value, record.key, where, noting(number), headers=headers)
        if number % _BATCH_EVENTS == 0:
            producer.flush(ANSWER_SECONDS_MAX)  # so that Kafka has batches, between which a log can be cut
    producer.flush(ANSWER_SECONDS_MAX)
    known = [place for place in places if place is not None]
    if len(known) != len(given):
        raise RunError(f"topic {target.topic}: Kafka has not taken {len(given) - len(known)} records")
    return known


def delete_records(target: Target, ends: dict[int, int]) -> None:
    """Delete the records below these offsets, as retention does."""
    wanted = [TopicPartition(target.topic, partition, offset) for partition, offset in ends.items()]
    admin = _admin(target)  # kept until the answers have arrived: they are lost with it
    for answer in admin.delete_records(wanted).values():
        answer.result(ANSWER_SECONDS_MAX)


def delete_topic(target: Target) -> None:
    """Delete the topic, and return once it is gone."""
    admin = _admin(target)
    admin.delete_topics([target.topic])[target.topic].result(ANSWER_SECONDS_MAX)
    waiting = threading.Event()
    while target.topic in admin.list_topics(timeout=ANSWER_SECONDS_MAX).topics:
        waiting.wait(0.1)


def count_members(target: Target) -> int:
    """Return how many members the group has."""
    admin, group = _admin(target), target.topic
    try:
        asked = admin.describe_consumer_groups([group], request_timeout=ANSWER_SECONDS_MAX)
        return len(asked[group].result(ANSWER_SECONDS_MAX).members)
    except KafkaException:
        return 0


def _admin(target: Target) -> AdminClient:
    return AdminClient({"bootstrap.servers": target.bootstrap_servers, "log_level": "2"})


def _of_later(record: Record) -> Record:
    """Return the record as a later release may write it (R3)."""
    later = [(name, value + b" later" if name == STATEMENT else value) for name, value in record.headers]
    return replace(record, headers=[*later, ("ce_later", b"1")])
