"""At most once: no event is sent twice, and the number of possibly lost ones is reported."""

import json
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.config.settings import KafkaSettings
from agent.forward.facts import InDoubtBatches, OversizedEvent, read_oversized, write_oversized
from agent.forward.modes.at_most_once import AtMostOnceSession, InDoubtRecord
from agent.forward.modes.oversized import REASON
from agent.store.facts import IN_DOUBT, OVERSIZED
from contract.event import Event
from simulators.services.kafka.broker import Broker
from tests.agent.forward.broker import KafkaTopic, LinkedTopic, sequence
from tests.agent.forward.checks import assert_each_once, in_doubt, wait_until_settled
from tests.agent.forward.events import device, readings
from tests.agent.forward.modes.answer_link import AnswerLink, Request
from tests.agent.forward.running import forwarding
from tests.agent.store.stores import accept, make_store
from tests.support.memory_outbox import MemoryOutbox
from tests.support.waiting import wait_for_count, wait_until

MODE = "at-most-once"


class DeclaringOutbox(MemoryOutbox):
    """Declares a given-up event by an event of the gateway's own, as the store does; this one is too large itself."""

    def give_up(self, position: int, reason: str) -> None:
        super().give_up(position, reason)
        self.append(Event(device(0), id=position, data={"gap": "x" * 5_000}), via="gateway")


def test_what_was_in_flight_when_nobody_knew_is_added_up() -> None:
    outbox = MemoryOutbox(*readings(20))
    record = InDoubtRecord(outbox)
    assert in_doubt(outbox) == InDoubtBatches()
    assert record.release(1, 10)
    assert (record.in_flight, in_doubt(outbox)) == (10, InDoubtBatches(1, 10))
    record.abandon("the connection ended")
    assert record.release(11, 15)
    assert in_doubt(outbox) == InDoubtBatches(11, 15, lost_max=10)
    record.clear()
    assert in_doubt(outbox) == InDoubtBatches(lost_max=10)
    assert record.release(16, 20)
    InDoubtRecord(outbox).abandon("the agent ended")
    assert in_doubt(outbox) == InDoubtBatches(lost_max=15)


@pytest.mark.parametrize("mode", [MODE, "at-least-once", "exactly-once"])
def test_what_was_in_flight_at_the_end_counts_at_the_start_without_a_broker_and_in_another_mode(mode: str) -> None:
    outbox = MemoryOutbox()
    outbox.set_fact(IN_DOUBT, str(InDoubtBatches(1, 10)))

    with forwarding(KafkaSettings("127.0.0.1:1", delivery=mode), outbox):
        wait_until(lambda: in_doubt(outbox) == InDoubtBatches(lost_max=10), "the batch counts as possibly lost", 20)


@pytest.mark.heavy
@pytest.mark.kafka
def test_what_another_mode_had_set_aside_for_its_size_no_longer_waits(kafka: KafkaTopic) -> None:
    outbox = MemoryOutbox(*readings(20))
    outbox.set_fact(OVERSIZED, write_oversized({4: OversizedEvent(70_000, 1, own=False)}))

    with forwarding(kafka.settings(MODE), outbox):
        wait_until_settled(outbox)

    assert_each_once(kafka, outbox)
    assert read_oversized(outbox.fact(OVERSIZED)) == {}


@pytest.mark.guarantee(4)
@pytest.mark.kafka
def test_of_what_is_too_large_the_gateways_own_is_not_declared_again_and_again(
    kafka: KafkaTopic, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = DeclaringOutbox(*readings(5), Event(device(1), id=9, data={"trace": "x" * 5_000}), *readings(5, 5))

    with forwarding(kafka.settings(MODE, message_max_bytes="1000"), outbox):
        wait_until(lambda: "event=lost" in caplog.text or len(outbox.given_up) > 1, "the declaration was refused")
        wait_until_settled(outbox)

    assert outbox.given_up == {6: REASON}
    assert len(outbox.stored()) == 12


@pytest.mark.kafka
def test_what_a_full_store_drops_between_its_read_and_its_release_is_not_sent(kafka: KafkaTopic) -> None:
    class DroppingOutbox(MemoryOutbox):
        def release(self, first: int, last: int, note: tuple[str, str]) -> bool:
            if not self.given_up:
                for position in (1, 2):
                    self.give_up(position, "dropped")
            return super().release(first, last, note)

    outbox = DroppingOutbox(*readings(10))

    with forwarding(kafka.settings(MODE), outbox):
        wait_until_settled(outbox)

    assert sorted(map(sequence, kafka.records())) == list(range(3, 11))
    assert in_doubt(outbox) == InDoubtBatches()


@pytest.mark.guarantee(4)
@pytest.mark.kafka
def test_a_batch_that_has_arrived_is_not_in_doubt_though_what_follows_it_is_dropped(kafka: KafkaTopic) -> None:
    class DroppingOutbox(MemoryOutbox):
        def release(self, first: int, last: int, note: tuple[str, str]) -> bool:
            if first == 1:
                self.append(*readings(5, 10))
            else:
                for position in range(first, last + 1):
                    self.give_up(position, "dropped")
            return super().release(first, last, note)

    outbox = DroppingOutbox(*readings(10))

    with forwarding(kafka.settings(MODE), outbox):
        wait_until_settled(outbox)

    assert sorted(map(sequence, kafka.records())) == list(range(1, 11))
    assert in_doubt(outbox) == InDoubtBatches()


@pytest.mark.kafka
async def test_what_is_too_large_is_declared_by_the_store_and_its_resend_is_new(
    kafka: KafkaTopic, tmp_path: Path
) -> None:
    large = Event(device(1), id=9, data={"trace": "x" * 5_000})
    async with make_store(tmp_path) as store:
        await accept(store, *readings(5), large)
        with forwarding(kafka.settings(MODE, message_max_bytes="1000"), store.outbox):
            wait_for_count(lambda: len(kafka.records()), 7, "the others, the agent's start and the gap have arrived")
        gaps = [json.loads(record.value() or b"") for record in kafka.records()]
        assert [gap["data"]["count"] for gap in gaps if gap["type"] == "gateway.gap"] == [1]
        assert (await accept(store, large)).accepted == 1


EVENTS = 100
STEP_SECONDS = 0.005
"""How long after the beginning of a step the broker is killed, to be killed within it."""
LOSSES: dict[str, Callable[[AnswerLink], None]] = {
    "records": lambda link: link.lose_request(Request.PRODUCE),
    "their ack": lambda link: link.lose(Request.PRODUCE),
    "a question": lambda link: link.lose_request(Request.METADATA),
    "its answer": lambda link: link.lose(Request.METADATA),
}


def assert_none_twice_and_none_missing_uncounted(kafka: KafkaTopic, outbox: MemoryOutbox) -> None:
    seen = Counter(sequence(record) for record in kafka.records())
    missing = len(outbox.stored()) - len(seen)
    print(f"missing={missing} lost_max={in_doubt(outbox).lost_max}")
    assert set(seen.values()) == {1}
    assert missing <= in_doubt(outbox).lost_max


@pytest.mark.guarantee(4)
@pytest.mark.heavy
@pytest.mark.kafka
@pytest.mark.parametrize("lost", LOSSES)
def test_a_connection_that_ends_with_a_batch_in_it_and_is_there_again_at_once_is_noticed(
    linked: LinkedTopic, link: AnswerLink, lost: str, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = MemoryOutbox(*readings(EVENTS))

    with forwarding(linked.settings(MODE), outbox):
        wait_until_settled(outbox)
        for burst in range(1, 4):
            LOSSES[lost](link)
            outbox.append(*readings(EVENTS, burst * EVENTS))
            wait_until_settled(outbox)
        assert not link.is_armed

    assert_none_twice_and_none_missing_uncounted(linked, outbox)
    assert ("in_flight_at_most" in caplog.text) == (in_doubt(outbox).lost_max > 0)


@pytest.mark.heavy
@pytest.mark.kafka
@pytest.mark.guarantee(4)
def test_nothing_is_sent_while_the_broker_does_not_answer_in_time(
    linked: LinkedTopic, link: AnswerLink, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = MemoryOutbox(*readings(EVENTS))

    with forwarding(linked.settings(MODE), outbox):
        wait_until_settled(outbox)
        link.hold(Request.METADATA)
        outbox.append(*readings(EVENTS, EVENTS))
        wait_until(lambda: "kafka=unreachable" in caplog.text, "the state is logged")
        assert outbox.new == EVENTS
        link.release()
        wait_until_settled(outbox)
        assert in_doubt(outbox) == InDoubtBatches()

    assert_each_once(linked, outbox)


STEPS = ((MemoryOutbox, "release"), (AtMostOnceSession, "_send"), (AtMostOnceSession, "_check_connection"))


@pytest.mark.guarantee(4)
@pytest.mark.heavy
@pytest.mark.kafka
@pytest.mark.parametrize("moment", ["before", "in", "after"])
@pytest.mark.parametrize(("owner", "method"), STEPS, ids=[method for _, method in STEPS])
def test_wherever_the_broker_is_killed_nothing_is_there_twice_and_nothing_missing_uncounted(
    broker: Broker, kafka: KafkaTopic, owner: type, method: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox = MemoryOutbox(*readings(5 * EVENTS))
    original = getattr(owner, method)
    chosen, killed = threading.Event(), threading.Event()

    def kill() -> None:
        chosen.set()
        broker.kill()
        killed.set()

    def deadly(*arguments: Any) -> Any:
        due = not chosen.is_set() and outbox.new < 4 * EVENTS
        if due and moment == "before":
            kill()
        if due and moment == "in":
            chosen.set()
            threading.Timer(STEP_SECONDS, kill).start()
        answer = original(*arguments)
        if due and moment == "after":
            kill()
        return answer

    monkeypatch.setattr(owner, method, deadly)
    monkeypatch.setattr("agent.forward.modes.session.BATCH_EVENTS_MAX", EVENTS)
    with forwarding(kafka.settings(MODE), outbox):
        wait_until(killed.is_set, "the broker is killed")
        broker.start()
        outbox.append(*readings(EVENTS, 5 * EVENTS))
        wait_until_settled(outbox)

    assert_none_twice_and_none_missing_uncounted(kafka, outbox)
