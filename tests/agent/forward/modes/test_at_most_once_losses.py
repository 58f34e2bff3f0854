"""At most once, with answers that do not come and connections that end: no more events are missing than are counted."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from agent.forward.facts import InDoubtBatches
from agent.forward.modes.at_most_once import AtMostOnceSession
from simulators.services.kafka.broker import Broker
from tests.agent.forward.broker import KafkaTopic, LinkedTopic, sequence
from tests.agent.forward.checks import assert_each_once, in_doubt, wait_until_settled
from tests.agent.forward.events import readings
from tests.agent.forward.modes.answer_link import AnswerLink, Request
from tests.agent.forward.modes.test_at_most_once import MODE
from tests.agent.forward.running import forwarding
from tests.support.memory_outbox import MemoryOutbox
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

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
@pytest.mark.parametrize("lost", LOSSES)
def test_a_connection_that_ends_with_a_batch_in_it_and_is_there_again_at_once_is_noticed(
    linked: LinkedTopic, link: AnswerLink, lost: str, caplog: pytest.LogCaptureFixture, outbox: MemoryOutbox
) -> None:
    outbox.append(*readings(EVENTS))

    with forwarding(linked.settings(MODE), outbox):
        wait_until_settled(outbox)
        for burst in range(1, 4):
            LOSSES[lost](link)
            outbox.append(*readings(EVENTS, burst * EVENTS))
            wait_until_settled(outbox)
        assert link.caught.is_set()

    assert_none_twice_and_none_missing_uncounted(linked, outbox)
    assert ("in_flight_at_most" in caplog.text) == (in_doubt(outbox).lost_max > 0)


@pytest.mark.heavy
@pytest.mark.guarantee(4)
def test_nothing_is_sent_while_the_broker_does_not_answer_in_time(
    linked: LinkedTopic, link: AnswerLink, caplog: pytest.LogCaptureFixture, outbox: MemoryOutbox
) -> None:
    outbox.append(*readings(EVENTS))

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
