"""A session whose acks wait: for a round, or for a question of its own that gets no answer."""

import threading
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from agent.forward.errors import KafkaSettingsError
from agent.forward.kafka.client import LastError
from agent.forward.kafka.health import FAILING, REACHABLE, UNREACHABLE, TopicLink
from agent.forward.kafka.login_files import WallSteps
from agent.forward.kafka.topic import LogEnd, TopicView, TopicWatch
from agent.forward.modes import at_least_once
from agent.forward.modes.at_least_once import AtLeastOnce, PipelinedSession
from agent.forward.modes.confirmation import CONFIRM_BATCHES, CONFIRM_MS
from agent.forward.modes.lanes import ForwardedLane
from agent.forward.modes.oversized import Oversized
from agent.forward.modes.session import SessionContext
from agent.forward.receipts.round import PATIENCE_SECONDS, SharedRound
from agent.store.port import Batch, Offsets
from agent.telemetry.links import LinkName, Links
from tests.agent.forward.events import readings
from tests.agent.forward.modes.test_in_flight import delivered
from tests.agent.store.stores import HandClock
from tests.support.memory_outbox import MemoryOutbox

TOPIC = "AAAAAAAAAAAAAAAAAAAAAQ"
POLL_SECONDS = 300.0
VIEW = TopicView(TOPIC, {0: LogEnd(0, 4)}, 1)


class AckingProducer:
    """Acks each record at the next poll, in partition 0."""

    def __init__(self, _: object) -> None:
        self._reports: deque[Any] = deque()
        self.sent = 0

    def produce(self, *arguments: Any, **_: Any) -> None:
        self._reports.append(arguments[4])

    def poll(self, _: float) -> int:
        served = len(self._reports)
        while self._reports:
            self._reports.popleft()(None, delivered(0, self.sent))
            self.sent += 1
        return served

    def purge(self) -> None:
        self._reports.clear()

    def __len__(self) -> int:
        return len(self._reports)


@dataclass
class Admin:
    """Answers each question at once: with an error where there is one."""

    error: KafkaError | None = None
    questions: int = 0

    def describe_topics(self, topics: Any, **_: Any) -> dict[str, Future[Any]]:
        self.questions += 1
        return {name: self._answer(SimpleNamespace(name=name, topic_id=TOPIC)) for name in topics.topic_names}

    def list_offsets(self, specs: Any, **_: Any) -> dict[Any, Future[Any]]:
        return {place: self._answer(SimpleNamespace(offset=1_000, leader_epoch=4)) for place in specs}

    def poll(self, _: float) -> int:
        return 0

    def _answer(self, value: object) -> Future[Any]:
        future: Future[Any] = Future()
        if self.error is None:
            future.set_result(value)
        else:
            future.set_exception(KafkaException(self.error))
        return future


@dataclass
class Gateway:
    """What a session needs, without a broker."""

    admin: Admin = field(default_factory=Admin)
    refusal: str = ""
    """Why no client can be opened; empty where one can."""

    def __post_init__(self) -> None:
        self.clock = HandClock()
        self.outbox = MemoryOutbox()
        self.links = Links(self.clock)
        self.shared = SharedRound(POLL_SECONDS)
        self.mode = AtLeastOnce()
        self.stop = threading.Event()

    def open(self) -> AdminClient:
        if self.refusal:
            raise KafkaSettingsError(self.refusal)
        return cast("AdminClient", self.admin)

    def session(self, topic: TopicView = VIEW) -> PipelinedSession:
        context = SessionContext(
            topic="t",
            gateway="gw-1",
            outbox=self.outbox,
            watch=TopicWatch(self.open(), "t", LastError(), self.open),
            link=TopicLink(self.links, ""),
            clock=self.clock,
            oversized=Oversized(self.outbox, self.clock, 0),
            silence_ms=10_000,
            shared=self.shared,
            wall_steps=WallSteps(self.clock),
            lane=ForwardedLane(),
        )
        return self.mode.open(context, {}, topic, self.stop)

    def turn(self, session: PipelinedSession) -> None:
        """Take one turn of the session, without its wait."""
        session._fill(self.stop)
        session._producer.poll(0)
        session._advance()

    def send(self, session: PipelinedSession, count: int = 1) -> None:
        """Send some events, which are acked at once."""
        self.outbox.append(*readings(count, self.outbox.end()))
        self.turn(session)


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Gateway:
    monkeypatch.setattr(at_least_once, "Producer", AckingProducer)
    return Gateway()


def test_acks_wait_for_a_round_and_where_none_comes_the_session_asks(gateway: Gateway) -> None:
    session = gateway.session()
    gateway.turn(session)  # since when there are acks
    gateway.send(session)
    gateway.clock.pass_seconds(POLL_SECONDS + PATIENCE_SECONDS - 1)
    gateway.send(session)
    assert gateway.outbox.new == 2
    gateway.clock.pass_seconds(1)
    gateway.turn(session)
    assert gateway.outbox.new == 0


def test_a_backlog_does_not_wait_for_a_round(gateway: Gateway) -> None:
    session = gateway.session()
    gateway.turn(session)
    for _ in range(CONFIRM_BATCHES - 1):
        gateway.send(session)
    gateway.clock.pass_seconds(CONFIRM_MS / 1_000)
    gateway.turn(session)
    assert gateway.outbox.new == CONFIRM_BATCHES - 1
    gateway.send(session)
    assert gateway.outbox.new == 0


def test_acks_wait_while_login_files_are_unusable(gateway: Gateway) -> None:
    session = gateway.session()
    gateway.send(session)
    gateway.refusal = "kafka.properties_file: /etc/kafka.pem cannot be read"
    gateway.clock.pass_seconds(2 * POLL_SECONDS)
    gateway.turn(session)
    assert gateway.links.reports()[LinkName.KAFKA].reason == gateway.refusal
    assert gateway.links.state(LinkName.KAFKA) == UNREACHABLE
    gateway.send(session)
    assert gateway.shared.acked.events == 2, "the former login still sends"
    gateway.refusal = ""
    gateway.clock.pass_seconds(2 * POLL_SECONDS)
    gateway.turn(session)
    assert gateway.outbox.new == 0


def test_returned_events_do_not_have_questions_repeated_without_pause(gateway: Gateway) -> None:
    gateway.outbox.append(*readings(1))
    before = Batch(1, 1, TOPIC, {0: Offsets(0, 0, 4)})
    gateway.outbox.mark_forwarded(before)
    session = gateway.session()
    gateway.send(session)
    gateway.admin.error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    gateway.outbox.return_batches([before])
    for _ in range(100):
        gateway.turn(session)
        gateway.clock.pass_seconds(CONFIRM_MS / 50_000)
    assert 1 <= gateway.admin.questions <= 3
    gateway.admin.error = None
    gateway.clock.pass_seconds(CONFIRM_MS / 1_000)
    gateway.turn(session)
    gateway.turn(session)
    assert session._producer.sent == 2  # type: ignore[attr-defined]
    assert gateway.outbox.new == 1, "the returned event is acked, and waits for a round"


def test_a_link_is_as_it_should_be_once_events_are_acked_again(gateway: Gateway) -> None:
    gateway.links.report(LinkName.KAFKA, FAILING, "a session has failed")
    session = gateway.session()
    gateway.send(session)
    assert gateway.outbox.new == 1
    assert gateway.links.state(LinkName.KAFKA) == REACHABLE


def test_a_link_is_not_as_it_should_be_while_acks_cannot_be_confirmed(gateway: Gateway) -> None:
    """Else it would change with each ack and question, and no alert of a state that lasts would ever fire."""
    session = gateway.session()
    gateway.send(session)
    gateway.admin.error = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
    for _ in range(3):
        gateway.clock.pass_seconds(2 * POLL_SECONDS)
        gateway.turn(session)
        gateway.send(session)
        assert gateway.links.state(LinkName.KAFKA) == UNREACHABLE
    gateway.admin.error = None
    gateway.clock.pass_seconds(2 * POLL_SECONDS)
    gateway.turn(session)
    assert gateway.links.state(LinkName.KAFKA) == REACHABLE


@pytest.mark.guarantee(4)
def test_the_questions_before_a_sessions_first_send_confirm_what_the_former_one_has_acked(gateway: Gateway) -> None:
    for _ in range(3):  # as where coverage is shorter than the time between two rounds
        session = gateway.session()
        gateway.send(session)
        session.close()
    gateway.session()
    assert gateway.outbox.new == 0
    assert [(batch.first, batch.last) for batch in gateway.outbox.forwarded()] == [(1, 1), (2, 2), (3, 3)], "each once"


@pytest.mark.guarantee(4)
@pytest.mark.parametrize(
    "view",
    [replace(VIEW, id="BAAAAAAAAAAAAAAAAAAAAQ"), replace(VIEW, ends={0: LogEnd(1, 5)}), replace(VIEW, ends={})],
    ids=["another topic", "another leader", "no leader"],
)
def test_what_a_former_session_has_acked_under_another_leader_is_sent_again(gateway: Gateway, view: TopicView) -> None:
    session = gateway.session()
    gateway.send(session, 2)
    session.close()
    session = gateway.session(view)
    assert gateway.outbox.new == 2
    gateway.turn(session)
    assert gateway.shared.acked.events == 2
