"""What a lane sends, and when: new events wait for others, expired ones are not sent, and higher lanes go first."""

import threading

import pytest

from agent.config.settings import KafkaSettings
from agent.forward.kafka.login_files import Hours, LoginFiles, SessionStop
from agent.forward.modes.lanes import EVENTS_MAX, STOP_MS_MAX, WAITED_FOR_MS, Expiry, ForwardedLane, Gathering, Rank
from agent.store.port import Batch, Offsets
from contract.event import Event, gateway_device
from tests.agent.forward.broker import KafkaTopic, sequence
from tests.agent.forward.checks import wait_until_forwarded
from tests.agent.forward.events import readings
from tests.agent.forward.running import ShiftedClock, forwarding
from tests.agent.store.stores import HandClock
from tests.support.memory_outbox import MemoryOutbox
from tests.support.waiting import wait_for_count, wait_until

SECONDS = 3_600.0


class WatchedOutbox(MemoryOutbox):
    waits = 0

    def wait(self, after: int, seconds: float) -> bool:
        self.waits += 1
        return super().wait(after, seconds)


@pytest.mark.kafka
@pytest.mark.parametrize("mode", ["at-least-once", "exactly-once", "at-most-once"])
def test_events_are_sent_together_once_the_oldest_has_waited_and_at_a_stop(
    kafka: KafkaTopic, gateway: str, mode: str
) -> None:
    outbox, clock = WatchedOutbox(), ShiftedClock()
    rank, other = ranks(HandClock(), 10, 0)
    outbox.append(*readings(3))
    lane = ForwardedLane(rank=rank, gather_seconds=SECONDS)

    with forwarding(kafka.settings(mode), outbox, gateway, lane=lane, clock=clock):
        wait_until_forwarded(outbox)  # a backlog does not wait
        for start in (3, 5):
            outbox.append(*readings(2, start))
            before = outbox.waits
            wait_for_count(lambda before=before: outbox.waits - before, 2, "it looks again", or_more=True)  # type: ignore[misc]
        assert outbox.new == 4
        assert other.ask(has_events=True)  # no other lane waits meanwhile
        clock.wall_shift_ms = clock.monotonic_shift_ms = int(SECONDS * 1000)  # in this order: no clock is set back
        wait_until_forwarded(outbox)
        assert (4, 7) in ({(batch.first, batch.last) for batch in outbox.forwarded()} or set(outbox.released))
        outbox.append(*readings(2, 7))
        before = outbox.waits
        wait_for_count(lambda: outbox.waits - before, 2, "it looks again", or_more=True)
        assert outbox.new == 2

    assert not outbox.new
    assert sorted(sequence(record) for record in kafka.records()) == list(range(1, 10))


def test_an_event_waits_no_longer_than_it_may_and_not_beside_many_others() -> None:
    outbox, clock = MemoryOutbox(*readings(2)), HandClock()
    gathering = Gathering(outbox, clock, 10.0)
    assert gathering.is_due(0)
    assert not gathering.is_due(2)
    outbox.append(*readings(1, 2))
    assert not gathering.is_due(2)
    clock.pass_seconds(6)
    outbox.append(*readings(1, 3))
    assert not gathering.is_due(2)
    assert gathering.seconds_left() == 4.0
    clock.pass_seconds(4)
    assert gathering.is_due(2)
    outbox.append(*readings(1, 4))
    assert gathering.is_due(3)  # what was there then is sent as one, in several batches if need be
    clock.pass_seconds(9)
    assert not gathering.is_due(4)
    clock.pass_seconds(1)
    assert gathering.is_due(4)
    assert not gathering.is_due(5)
    outbox.append(*readings(EVENTS_MAX - 1, 5))
    assert not gathering.is_due(5)
    outbox.append(*readings(1, 4 + EVENTS_MAX))
    assert gathering.is_due(5)


def test_what_is_returned_is_sent_at_once() -> None:
    outbox, clock = MemoryOutbox(*readings(4)), HandClock()
    gathering = Gathering(outbox, clock, 10.0)
    batch = Batch(1, 4, "topic", {0: Offsets(0, 3, 0)})
    outbox.mark_forwarded(batch)
    outbox.append(*readings(1, 4))
    assert not gathering.is_due(4)
    outbox.return_batches([batch])
    assert gathering.is_due(0)


def test_a_stop_waits_for_what_was_gathered_but_not_for_long() -> None:
    outbox, clock, stop = MemoryOutbox(), HandClock(), threading.Event()
    gathering = Gathering(outbox, clock, 10.0)
    session_stop = SessionStop(stop, LoginFiles(KafkaSettings("127.0.0.1:1"), clock), Hours((), clock))
    session_stop.has_left = gathering.has_left
    outbox.append(*readings(1))
    assert not gathering.is_due(0)
    stop.set()
    assert not session_stop.is_set()
    assert gathering.is_due(0)
    clock.pass_seconds(STOP_MS_MAX / 1_000)
    assert session_stop.is_set()
    assert session_stop.wait(0)


OWN = Event(gateway_device("gw"), "gateway.started", "e")
ALL = 1 << 40


def filled() -> MemoryOutbox:
    """Fill an outbox: an event of the gateway, four of sensors, one of the gateway, two of sensors."""
    outbox = MemoryOutbox()
    for start, count in ((0, 4), (4, 2)):
        outbox.append(OWN, via="gateway")
        outbox.append(*readings(count, start))
    return outbox


def sent_in_turn(outbox: MemoryOutbox, expiry: Expiry) -> list[int]:
    """Return the positions that are sent, where each batch has all that is read at once."""
    sent: list[int] = []
    while outbox.wait(max(sent, default=0), 0):
        events = expiry.unexpired(outbox.read(max(sent, default=0), 100, ALL))
        sent += [event.position for event in events]
    return sent


def test_what_has_expired_is_given_up_and_the_gateways_own_events_are_sent() -> None:
    outbox = filled()
    outbox.old_to = 7
    assert sent_in_turn(outbox, Expiry(outbox, 60.0)) == [1, 6, 8]
    assert outbox.given_up == dict.fromkeys((2, 3, 4, 5, 7), "expired")


@pytest.mark.guarantee(4)
def test_what_may_have_been_sent_before_does_not_expire() -> None:
    outbox = filled()
    expiry = Expiry(outbox, 60.0)
    assert sent_in_turn(outbox, expiry) == [1, 2, 3, 4, 5, 6, 7, 8]
    outbox.append(*readings(2, start=6))
    outbox.old_to = 10
    assert sent_in_turn(outbox, expiry) == [1, 2, 3, 4, 5, 6, 7, 8]  # the next session begins with the first again
    assert outbox.given_up == dict.fromkeys((9, 10), "expired")


@pytest.mark.kafka
@pytest.mark.parametrize("mode", ["at-least-once", "exactly-once", "at-most-once"])
def test_nothing_that_has_expired_is_in_the_topic(kafka: KafkaTopic, gateway: str, mode: str) -> None:
    outbox = filled()
    outbox.old_to = 5
    lane = ForwardedLane("alarms", time_to_live_seconds=60.0)
    with forwarding(kafka.settings(mode), outbox, gateway, lane=lane):
        wait_until(lambda: not outbox.new, "all is sent or given up")
        wait_until(lambda: {sequence(record) for record in kafka.records()} == {1, 6, 7, 8}, "what is sent is there")
    assert set(outbox.given_up) == {2, 3, 4, 5}


def ranks(clock: HandClock, *priorities: int) -> list[Rank]:
    asked: dict[Rank, int] = {}
    return [Rank(clock, priority, asked) for priority in priorities]


def test_a_lane_waits_while_one_of_higher_priority_has_events() -> None:
    high, low, lowest = ranks(HandClock(), 10, 0, -1)
    assert low.ask(has_events=True)
    assert not lowest.ask(has_events=True)
    assert high.ask(has_events=True)
    assert not low.ask(has_events=True)
    assert not lowest.ask(has_events=True)
    high.ask(has_events=False)
    assert low.ask(has_events=True)
    low.ask(has_events=False)
    assert lowest.ask(has_events=True)


def test_lanes_of_equal_priority_neither_wait_for_each_other_nor_withdraw_what_the_other_has_asked() -> None:
    one, other, low = ranks(HandClock(), 3, 3, 0)
    assert one.ask(has_events=True)
    assert other.ask(has_events=True)
    other.ask(has_events=False)
    assert not low.ask(has_events=True)


@pytest.mark.guarantee(4)
def test_nobody_waits_for_a_lane_that_does_not_ask_again(clock: HandClock) -> None:
    stuck, low = ranks(clock, 10, 0)
    stuck.ask(has_events=True)
    clock.pass_seconds(WAITED_FOR_MS / 1000 - 1)
    assert not low.ask(has_events=True)
    clock.pass_seconds(1)
    assert low.ask(has_events=True)
