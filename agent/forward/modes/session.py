"""The interface of the delivery modes, and what all of them share: reading new events, and handing records over."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from agent.clock import Clock
from agent.forward.errors import SessionError
from agent.forward.kafka.client import LastError, code_of, describe
from agent.forward.kafka.health import TopicLink
from agent.forward.kafka.login_files import WallSteps
from agent.forward.kafka.record import encode
from agent.forward.kafka.topic import BY_KEY, TopicView, TopicWatch
from agent.forward.modes.in_flight import InFlightBatch
from agent.forward.modes.lanes import EVENTS_MAX, Expiry, ForwardedLane, Gathering
from agent.forward.modes.oversized import TOO_LARGE_CODES, Oversized
from agent.forward.receipts.round import SharedRound
from agent.store.port import Outbox, StoredEvent
from contract.record import Record

if TYPE_CHECKING:
    from confluent_kafka._types import HeadersType

START: Final = 0
"""Below every position: the outbox counts from 1."""
IDLE_SECONDS_MAX: Final = 0.5
"""How long a session waits for an event, and so the longest time until a stop takes effect."""
POLL_SECONDS_MAX: Final = 0.02
"""How long a session waits at once for a delivery report."""
STOP_MS_MAX: Final = 5_000
"""How long in-flight batches may take to be reported and marked when the agent stops."""
BATCH_EVENTS_MAX = EVENTS_MAX
BATCH_BYTES_MAX = 512 * 1024
"""Bounds of one batch read from the outbox."""
FIXED: Final[Mapping[str, str | None]] = {
    "request.required.acks": None,
    "partitioner": "murmur2_random",
    "delivery.report.only.error": None,
}
"""The client properties that all modes depend on (`Mode.fixed`)."""
PURGE_POLLS_MAX: Final = 10
"""Rounds of POLL_SECONDS_MAX in which a purged producer reports its records."""


@dataclass(frozen=True, slots=True)
class SessionContext:
    """The parts that all sessions of a forwarder share."""

    topic: str
    gateway: str
    outbox: Outbox
    watch: TopicWatch
    link: TopicLink
    clock: Clock
    oversized: Oversized
    lane: ForwardedLane
    silence_ms: int
    """How long there may be no delivery report before the broker counts as unreachable."""
    wall_steps: WallSteps
    """Counted since the session's clients were opened."""
    gathering: Gathering | None = None
    """None where each event is sent at once."""
    partition: int = BY_KEY
    """That of all events; BY_KEY where the key decides it."""
    expiry: Expiry | None = None
    """None where events are sent whatever their age."""
    sign: Callable[[bytes, bytes, bytes], bytes] | None = None
    """Authenticates records (`contract.mac`); None where the gateway has no key."""
    shared: SharedRound | None = None
    """The rounds that confirm acks; None where there are none."""


class Session:
    """The life of one producer: from the lowest new event on, until something fails or the agent stops."""

    def __init__(self, context: SessionContext, producer: Producer, errors: LastError) -> None:
        self._context = context
        self._producer = producer
        self._errors = errors
        self._cursor = START
        """The highest position that was read, and is not read again."""
        self.marked = 0
        """How many batches this session has marked."""

    def run(self, stop: threading.Event) -> None:
        """Send until the agent stops; raise SessionError where this producer cannot continue."""
        raise NotImplementedError

    def close(self) -> None:
        """Abandon the producer and its records; bounded in time, whatever the broker does."""
        discard(self._producer)

    def _process_reports(self, *others: Consumer) -> None:
        """Process what the clients report for the cap, in each turn of the session.

        Twice a second each client queues 10 KiB or more (`STATISTICS_MS`), without limit, until it is polled.
        """
        if self._context.lane.uplink is not None:
            self._context.watch.serve()
            self._producer.poll(0)
            for other in others:
                other.poll(0)

    def _wait_for_new(self, seconds: float) -> bool:
        """Wait for a new event above the cursor that may be sent now, or a returned batch.

        While it is another lane's turn, or the cap forbids it, or events are gathered, the producer is served.
        """
        context, after = self._context, self._cursor
        gathering, rank, uplink = context.gathering, context.lane.rank, context.lane.uplink
        if gathering is not None and not gathering.is_due(after) and (left := gathering.seconds_left()):
            if rank is not None:
                rank.ask(has_events=False)
            serve(self._producer, min(seconds, left))
            return False
        if (rank is not None and not rank.ask(has_events=context.outbox.wait(after, 0))) or (
            uplink is not None and not uplink.is_open()
        ):
            serve(self._producer, min(seconds, POLL_SECONDS_MAX))
            return False
        is_new = context.outbox.wait(after, seconds)
        return is_new if gathering is None else is_new and gathering.is_due(after)

    def _read_new(self) -> Sequence[StoredEvent]:
        """Read new events above the cursor: a batch, or as much of one as the cap allows at once.

        There may be none where some of them have expired.
        """
        uplink, expiry = self._context.lane.uplink, self._context.expiry
        bytes_max = BATCH_BYTES_MAX if uplink is None else min(BATCH_BYTES_MAX, uplink.bytes_max)
        events = self._context.outbox.read(self._cursor, BATCH_EVENTS_MAX, bytes_max)
        return events if expiry is None else expiry.unexpired(events)

    def _count_for_cap(self, events: Sequence[StoredEvent]) -> None:
        """Count events on a capped uplink when the producer takes them: some that were read may wait."""
        lane = self._context.lane
        if lane.uplink is not None:
            lane.uplink.hand_over(len(events), sum(len(event.tail) for event in events), lane.name)

    def _hand_over(self, event: StoredEvent, batch: InFlightBatch, check: Callable[[], None]) -> bool:
        """Hand an event to the producer as part of a batch; return False where it is too large.

        While the producer's queue is full, `check` is called, which raises where waiting is pointless.
        """
        context = self._context
        record = encode(event, context.gateway, context.sign)
        if not hand_over(self._producer, context.topic, record, batch.report, check, context.partition):
            return False
        batch.sent(event.position)
        return True

    def _size(self, event: StoredEvent) -> int:
        _, value, _ = encode(event, self._context.gateway, self._context.sign)
        return len(value)


class Mode(Protocol):
    """The differences between the delivery modes."""

    @property
    def fixed(self) -> Mapping[str, str | None]:
        """Client properties behind the guarantee; users may not override them, nor set those with None."""

    def open(self, context: SessionContext, config: dict[str, Any], topic: TopicView, stop: threading.Event) -> Session:
        """Begin a session with the topic in its present state.

        Raise KafkaException or SessionError where that fails, ClonedError where it must not be retried.
        """


Delivered = Callable[[KafkaError | None, Message], None]


def hand_over(
    producer: Producer,
    topic: str,
    record: Record,
    delivered: Delivered,
    check: Callable[[], None],
    partition: int,
) -> bool:
    """Hand a record to the producer; return False where it is too large.

    While the producer's queue is full, `check` is called, which raises where waiting is pointless.
    """
    key, value, headers = record
    while True:
        try:
            producer.produce(topic, value, key, partition, delivered, headers=cast("HeadersType", headers))
            return True
        except BufferError:  # the user's own bounds of librdkafka's queue are below ours
            serve(producer, POLL_SECONDS_MAX)
            check()
        except KafkaException as error:
            if code_of(error) not in TOO_LARGE_CODES:
                raise SessionError(describe(error)) from error
            return False


def serve(producer: Producer, seconds: float) -> None:
    """Process delivery reports; sleep for `seconds` where there is none.

    Does not wait within the client, whose waits lengthen when the wall clock is set back (decision 38).
    """
    if not producer.poll(0):
        time.sleep(seconds)


def discard(producer: Producer) -> None:
    """Abandon a producer and its records; bounded in time, whatever the broker does."""
    with suppress(KafkaException):  # a producer with a fatal error raises at every call
        producer.purge()
    for _ in range(PURGE_POLLS_MAX):
        if not len(producer):
            break
        with suppress(KafkaException):
            serve(producer, POLL_SECONDS_MAX)
