"""At most once, with connections that end with events in flight: no more events are missing than are counted."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from agent.config.settings import KafkaSettings
from agent.forward.delivery.at_most_once import AtMostOnceSession
from simulators.services import ports
from simulators.services.kafka.broker import Broker, Listener
from tests.agent.forward.broker import KafkaTopic, sequence
from tests.agent.forward.delivery.answer_link import AnswerLink, Request
from tests.agent.forward.delivery.test_at_most_once import MODE, in_doubt, unsettled
from tests.agent.forward.events import readings
from tests.agent.forward.running import forwarding
from tests.support.memory_outbox import MemoryOutbox
from tests.support.waiting import wait_for_count, wait_until

pytestmark = pytest.mark.kafka

EVENTS = 100
STEP_SECONDS = 0.005
"""How long after the beginning of a step the broker is killed, to be killed within it."""


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, int, int]]:
    """Yield a broker that advertises the link's address, the port where it listens, and the link's."""
    listens, says = ports.free(2)
    with Broker(tmp_path_factory.mktemp("linked"), Listener("PLAINTEXT", listens, says)) as broker:
        yield broker, listens, says


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
    linked: tuple[Broker, int, int], lost: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker, listens, says = linked
    kafka = KafkaTopic(broker.bootstrap_servers, f"losses.{uuid4().hex}")
    kafka.partitions = 1
    kafka.create_topic()
    outbox = MemoryOutbox()
    outbox.append(*readings(EVENTS))

    with AnswerLink(says, listens) as link, forwarding(KafkaSettings(f"127.0.0.1:{says}", kafka.topic, MODE), outbox):
        wait_for_count(lambda: unsettled(outbox), 0, "everything has arrived")
        for burst in range(1, 4):
            LOSSES[lost](link)
            outbox.append(*readings(EVENTS, burst * EVENTS))
            wait_for_count(lambda: unsettled(outbox), 0, "everything is released")
        assert link.caught.is_set()

    assert_none_twice_and_none_missing_uncounted(kafka, outbox)
    assert ("in_flight_at_most" in caplog.text) == (in_doubt(outbox).lost_max > 0)


STEPS = ((MemoryOutbox, "release"), (AtMostOnceSession, "_send"), (AtMostOnceSession, "_check_connection"))


@pytest.mark.guarantee(4)
@pytest.mark.heavy
@pytest.mark.parametrize("moment", ["before", "in", "after"])
@pytest.mark.parametrize(("owner", "method"), STEPS, ids=[method for _, method in STEPS])
def test_wherever_the_broker_is_killed_nothing_is_there_twice_and_nothing_missing_uncounted(
    broker: Broker, kafka: KafkaTopic, owner: type, method: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox = MemoryOutbox()
    outbox.append(*readings(5 * EVENTS))
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
    monkeypatch.setattr("agent.forward.delivery.reading.BATCH_EVENTS_MAX", EVENTS)
    with forwarding(kafka.settings(MODE), outbox):
        wait_until(killed.is_set, "the broker is killed")
        broker.start()
        outbox.append(*readings(EVENTS, 5 * EVENTS))
        wait_for_count(lambda: unsettled(outbox), 0, "everything is released")

    assert_none_twice_and_none_missing_uncounted(kafka, outbox)
