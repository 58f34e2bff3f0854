"""Records that Kafka refuses for their size wait while others are sent, and are given up only after a long time."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from agent.config.settings import KafkaSettings
from agent.forward.errors import UnreachableError
from agent.forward.facts import read_oversized
from agent.forward.kafka.health import UNREACHABLE
from agent.forward.modes import oversized
from agent.forward.modes.oversized import HELD_MAX, REASON, RETRY_MS, Oversized
from agent.store.facts import OVERSIZED
from agent.store.port import Batch, StoredEvent
from agent.telemetry.links import LinkName
from contract.event import Event
from contract.record import encode_tail
from simulators.services.kafka.broker import Broker
from tests.agent.forward.broker import KafkaTopic
from tests.agent.forward.checks import assert_each_once, assert_nothing_lost
from tests.agent.forward.events import device, readings
from tests.agent.forward.running import forwarding
from tests.agent.store.stores import HandClock
from tests.support.memory_outbox import RECEIVED, MemoryOutbox
from tests.support.waiting import wait_until

MODES = ("at-least-once", "exactly-once")
LARGE = Event(device(1), id=7, data={"trace": "".join(chr(0x4E00 + number * 7919 % 20_000) for number in range(3_000))})
"""Almost incompressible."""


def waiting(outbox: MemoryOutbox) -> list[int]:
    return sorted(read_oversized(outbox.fact(OVERSIZED)))


@pytest.fixture
def outbox() -> MemoryOutbox:
    return MemoryOutbox(*readings(50), LARGE, *readings(50, 50), LARGE)


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oversized, "RETRY_MS", 300)


def assert_arrived(kafka: KafkaTopic, outbox: MemoryOutbox, mode: str) -> None:
    if mode == "exactly-once":
        assert_each_once(kafka, outbox)
    else:
        assert_nothing_lost(kafka, outbox)


def large(settings: KafkaSettings, seconds: float) -> KafkaSettings:
    return replace(settings, oversized_after_seconds=seconds)


RECORDS_AND_MARKERS = 4
"""Offsets that an event uses if its transaction is first aborted, then committed."""
SMALL = {"message_max_bytes": "3000", "batch_size": "3000"}


@pytest.mark.guarantee(4)
@pytest.mark.kafka
@pytest.mark.parametrize("delivery", MODES)
def test_what_the_producer_refuses_waits_until_its_limit_is_raised_and_the_rest_goes_on(
    kafka: KafkaTopic, outbox: MemoryOutbox, delivery: str
) -> None:
    with forwarding(kafka.settings(delivery, **SMALL), outbox):
        wait_until(lambda: outbox.new == 2, "all others are forwarded")
        assert waiting(outbox) == [51, 102]
    with forwarding(kafka.settings(delivery), outbox):
        wait_until(lambda: outbox.new == 0, "everything is forwarded")

    assert outbox.given_up == {}
    assert waiting(outbox) == []
    assert_arrived(kafka, outbox, delivery)


@pytest.mark.heavy
@pytest.mark.guarantee(4)
@pytest.mark.kafka
@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize("delivery", MODES)
def test_what_the_broker_refuses_for_long_enough_is_given_up_and_the_rest_goes_on(
    kafka: KafkaTopic, outbox: MemoryOutbox, delivery: str
) -> None:
    kafka.configure_topic("max.message.bytes", "3000")

    with forwarding(large(kafka.settings(delivery), 1.0), outbox):
        wait_until(lambda: outbox.new <= 2, "all others are forwarded")
        outbox.append(*readings(50, 100))
        wait_until(lambda: outbox.new == 0, "the large ones are given up, and the new ones forwarded")

    assert outbox.given_up == {51: REASON, 102: REASON}
    assert_arrived(kafka, outbox, delivery)


@pytest.mark.guarantee(4)
@pytest.mark.heavy
@pytest.mark.kafka
@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize("delivery", MODES)
def test_what_only_the_producer_refuses_while_the_broker_is_away_is_not_given_up(
    broker: Broker, kafka: KafkaTopic, delivery: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.forward.kafka.topic.REQUEST_SECONDS_MAX", 1.0)
    outbox = MemoryOutbox(*readings(10), LARGE)

    with forwarding(large(kafka.settings(delivery, **SMALL), 3.0), outbox) as links:
        wait_until(lambda: outbox.new == 1, "all others are forwarded")
        broker.kill()
        wait_until(
            lambda: bool(outbox.given_up) or links.state(LinkName.KAFKA) == UNREACHABLE,
            "it is noticed, or it is too late",
        )

    assert outbox.given_up == {}
    assert waiting(outbox) == [11]


@pytest.mark.guarantee(4)
@pytest.mark.kafka
def test_after_a_refused_record_a_transaction_is_aborted_before_the_next_is_committed(kafka: KafkaTopic) -> None:
    """The abort of the refused one may not have been carried out in its partitions yet."""
    outbox = MemoryOutbox(Event(device(1), id=1, data={}))
    with forwarding(kafka.settings("exactly-once", **SMALL), outbox):
        wait_until(lambda: outbox.new == 0, "the first is forwarded")
        (end,) = (end for end in kafka.ends().values() if end)
        assert end == RECORDS_AND_MARKERS
        outbox.append(LARGE)
        wait_until(lambda: waiting(outbox) == [2], "the large one waits")
        outbox.append(Event(device(1), id=3, data={}))
        wait_until(lambda: outbox.new == 1, "the small one is forwarded")

    (end,) = (end for end in kafka.ends().values() if end)
    assert end == 2 * RECORDS_AND_MARKERS


# The rules, without Kafka


class Refusing:
    """Events, one of which Kafka refuses at each attempt."""

    def __init__(self, count: int, after_ms: int = 86_400_000, via: str = "coap") -> None:
        self.clock = HandClock()
        self.outbox = MemoryOutbox(*readings(count))
        self.after_ms = after_ms
        self.via = via
        self.rules = self.restart()

    def restart(self) -> Oversized:
        self.rules = Oversized(self.outbox, self.clock, self.after_ms)
        return self.rules

    def events(self) -> Sequence[StoredEvent]:
        return self.outbox.read(0, 10**6, 10**9)

    def refuse(self, position: int, size: int) -> None:
        event = next(event for event in self.events() if event.position == position)
        own = Event(device(0), id=position, data={})
        self.rules.refused(replace(event, tail=encode_tail(own, RECEIVED, self.via)), size)

    def try_again(self, ask: Callable[[], object] = lambda: None) -> list[int]:
        return [event.position for event in self.rules.next_try(ask)]

    def try_and_refuse(self) -> int:
        """Advance the clock to the next retry, and refuse the retried event."""
        self.clock.pass_seconds(RETRY_MS / 1000)
        (position,) = self.try_again()
        self.refuse(position, read_oversized(self.outbox.fact(OVERSIZED))[position].size)
        return position


def test_a_suspect_goes_alone_and_what_waits_not_at_all() -> None:
    case = Refusing(6)
    events = case.events()

    def cut(first: int) -> list[int]:
        return [event.position for event in case.rules.cut(events[first - 1 :])]

    assert cut(1) == [1, 2, 3, 4, 5, 6]
    case.rules.suspect(3, 4)
    assert [cut(1), cut(3), cut(4), cut(5)] == [[1, 2], [3], [4], [5, 6]]
    case.refuse(3, 900)
    assert [cut(1), cut(3)] == [[1, 2], [4]]
    assert not case.rules.accepted(4)
    assert [cut(1), cut(3)] == [[1, 2], [4, 5, 6]]


def test_the_smallest_is_tried_again_and_where_it_is_taken_all_go_again() -> None:
    case = Refusing(4)
    for position, size in ((1, 700), (2, 500), (4, 900)):
        case.refuse(position, size)

    assert case.try_again() == []
    case.clock.pass_seconds(RETRY_MS / 1000)
    assert case.try_again() == [2]
    assert case.try_again() == [], "one at a time"
    assert case.rules.goes_alone(2)
    assert case.rules.accepted(2)

    assert [event.position for event in case.rules.cut(case.events())] == [1, 2, 3, 4]
    assert waiting(case.outbox) == []


@pytest.mark.guarantee(4)
def test_only_time_in_which_kafka_has_refused_counts_and_outlives_a_restart() -> None:
    case = Refusing(2, after_ms=10 * RETRY_MS)
    case.refuse(1, 700)
    tries = 0
    while case.outbox.given_up == {}:
        case.clock.pass_seconds((RETRY_MS if tries % 2 else 1_000 * RETRY_MS) / 1000)  # Kafka or the agent was down
        if tries % 5 == 4:
            case.restart()
        assert case.try_again() == [1]
        case.refuse(1, 700)
        tries += 1

    assert 10 <= tries <= 20
    assert case.outbox.given_up == {1: REASON}
    assert waiting(case.outbox) == []


@pytest.mark.guarantee(4)
def test_nothing_is_given_up_that_was_not_refused_once_more_after_its_time() -> None:
    case = Refusing(3, after_ms=3 * RETRY_MS)
    for position, size in ((1, 900), (2, 700), (3, 800)):
        case.refuse(position, size)
    tried = [case.try_and_refuse() for _ in range(4)]
    assert tried == [2, 2, 2, 2]
    assert case.outbox.given_up == {2: REASON}, "the others were not asked about since they were refused first"

    case.clock.pass_seconds(RETRY_MS / 1000)
    assert case.try_again() == [3]
    assert case.rules.accepted(3)

    assert case.outbox.given_up == {2: REASON}
    assert waiting(case.outbox) == []


def test_while_no_broker_answers_nothing_is_tried_and_no_time_counts() -> None:
    case = Refusing(1, after_ms=2 * RETRY_MS)

    def ask() -> object:
        raise UnreachableError("nobody listens")

    case.refuse(1, 700)
    case.try_and_refuse()
    before = case.outbox.fact(OVERSIZED)
    for _ in range(5):
        case.clock.pass_seconds(RETRY_MS / 1000)
        with pytest.raises(UnreachableError):
            case.try_again(ask)

    assert case.outbox.fact(OVERSIZED) == before
    assert case.try_again() == [1]


def test_what_is_refused_again_after_another_was_taken_waits_anew() -> None:
    case = Refusing(2, after_ms=3 * RETRY_MS)
    case.refuse(1, 700)
    case.refuse(2, 900)
    for _ in range(3):
        case.try_and_refuse()
    case.clock.pass_seconds(RETRY_MS / 1000)
    assert case.try_again() == [1]
    assert case.rules.accepted(1)
    case.refuse(2, 900)

    assert read_oversized(case.outbox.fact(OVERSIZED))[2].refused_ms == 0


def test_what_is_no_longer_new_leaves_the_fact_with_the_next_try() -> None:
    case = Refusing(3)
    case.refuse(1, 700)
    case.refuse(2, 900)
    case.outbox.mark_forwarded(Batch(1, 1, "topic-1", {}))
    case.restart()

    assert case.try_again() == [2]
    assert waiting(case.outbox) == [2]
    case.outbox.give_up(2, "damaged")
    case.clock.pass_seconds(RETRY_MS / 1000)
    assert case.try_again() == []
    assert waiting(case.outbox) == []


def test_the_gateways_own_events_are_never_given_up() -> None:
    case = Refusing(1, after_ms=0, via="gateway")
    case.refuse(1, 900)

    assert case.outbox.given_up == {}
    assert waiting(case.outbox) == [1]


def test_where_too_many_wait_nothing_else_is_sent(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "agent.forward")
    case = Refusing(HELD_MAX)
    for event in case.events():
        case.rules.refused(event, 900)

    assert case.rules.full
    assert caplog.text.count("oversized=full") == 1
    case.clock.pass_seconds(RETRY_MS / 1000)
    assert case.try_again() == [1]
    assert case.rules.accepted(1)
    assert not case.rules.full
