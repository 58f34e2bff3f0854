"""Receipts: the job's commits count, and no other ones; and a round decides on no batch that was acked after it."""

import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from agent.clock import SystemClock
from agent.config.settings import KafkaSettings, ReceiptSettings
from agent.forward.facts import read_hold
from agent.forward.kafka.client import LastError
from agent.forward.kafka.health import FAILING, UNREACHABLE
from agent.forward.modes.in_flight import InFlightWindow
from agent.forward.receipts import round as shared_round
from agent.forward.receipts.group_offsets import GroupOffsets, read_labels, read_receipt
from agent.forward.receipts.poller import FLOWING, ReceiptPoller
from agent.forward.receipts.round import ROUND_EVENTS, Acked, SharedRound
from agent.forward.receipts.rules import PartitionView, View
from agent.forward.receipts.truncation import RecordLabel
from agent.store.facts import RECEIPTS_HELD, RECEIPTS_TABLE
from agent.store.port import Batch, Offsets, OutboxError
from agent.telemetry.links import LinkName, Links
from contract.receipt import Receipt
from contract.record import STATEMENT
from simulators.services.kafka.broker import Broker
from tests.agent.forward.broker import KafkaTopic
from tests.agent.forward.checks import forward_all, processed
from tests.agent.forward.events import readings
from tests.agent.forward.modes.test_in_flight import LEADERS, delivered, in_flight
from tests.agent.forward.running import GATEWAY, forwarding, receipting
from tests.support.memory_outbox import MemoryOutbox
from tests.support.waiting import wait_for_count, wait_until

EVENTS = 50


class CountingOutbox(MemoryOutbox):
    """Counts the queries for outstanding batches: one for each poll. Its disk may be full."""

    polls = 0
    is_full = False

    def set_fact(self, name: str, value: str) -> None:
        if self.is_full:
            raise OutboxError("the disk is full")
        super().set_fact(name, value)

    def forwarded(self) -> Sequence[Batch]:
        self.polls += 1
        return super().forwarded()


def wait_for_polls(outbox: CountingOutbox) -> None:
    """Wait until polls have begun and ended after this moment."""
    before = outbox.polls
    wait_for_count(lambda: outbox.polls - before, 6, "polls", or_more=True)


@pytest.fixture
def outbox(kafka: KafkaTopic) -> CountingOutbox:
    """Return an outbox whose events are in the topic."""
    outbox = CountingOutbox(*readings(EVENTS))
    forward_all(kafka.settings(), outbox)
    return outbox


@pytest.mark.kafka
def test_a_true_receipt_counts_and_pins_its_table(
    kafka: KafkaTopic, outbox: CountingOutbox, caplog: pytest.LogCaptureFixture
) -> None:
    outbox.is_full = True
    with receipting(kafka.settings(), outbox):
        wait_for_polls(outbox)
        assert processed(outbox) == 0
        kafka.commit(None, kafka.receipt())
        wait_until(lambda: "receipts=held" in caplog.text, "the table cannot be pinned")
        wait_for_polls(outbox)
        assert (processed(outbox), caplog.text.count("receipts=held")) == (0, 1)
        outbox.is_full = False
        wait_for_count(lambda: processed(outbox), EVENTS, "all are processed")

    assert outbox.fact(RECEIPTS_TABLE) == "table-1"


@pytest.mark.heavy
@pytest.mark.kafka
@pytest.mark.parametrize("is_given_up", [False, True])
def test_after_a_poll_that_nobody_answered_another_client_asks(
    broker: Broker, kafka: KafkaTopic, outbox: CountingOutbox, monkeypatch: pytest.MonkeyPatch, *, is_given_up: bool
) -> None:
    for module in ("receipts.group_offsets", "kafka.topic"):
        monkeypatch.setattr(f"agent.forward.{module}.REQUEST_SECONDS_MAX", 1.0)

    with receipting(kafka.settings(), outbox) as links:
        wait_for_polls(outbox)
        broker.kill()
        wait_until(lambda: links.state(LinkName.RECEIPTS) == UNREACHABLE, "nobody answers")
        if is_given_up:
            outbox.mark_processed(outbox.forwarded())
        broker.start()
        if not is_given_up:
            kafka.commit(None, kafka.receipt())
        wait_until(lambda: links.state(LinkName.RECEIPTS) == FLOWING, "the broker answers")
        wait_for_count(lambda: processed(outbox), EVENTS, "all are processed")


def test_it_asks_only_while_something_is_outstanding() -> None:
    nobody = KafkaSettings("127.0.0.1:1")
    outbox = CountingOutbox()

    with receipting(nobody, outbox):
        wait_for_polls(outbox)  # a poll that sends requests would hang, since no broker answers
        outbox.append(*readings(1))
        outbox.mark_forwarded(Batch(1, 1, "topic-1", {0: Offsets(0, 0)}))
        before = outbox.polls
        wait_until(lambda: outbox.polls > before, "a poll that asks")

    assert outbox.polls <= before + 2


class UnreadableFacts(CountingOutbox):
    """Cannot read a fact, as on a failing disk."""

    def fact(self, name: str) -> str | None:
        raise OutboxError("the store fails: disk I/O error")


def test_facts_that_cannot_be_read_do_not_end_the_asking() -> None:
    outbox = UnreadableFacts()

    with receipting(KafkaSettings("127.0.0.1:1"), outbox):
        wait_for_polls(outbox)


def test_facts_that_cannot_be_read_do_not_end_the_forwarding() -> None:
    outbox = UnreadableFacts()

    with socket.create_server(("127.0.0.1", 0)) as somebody:
        settings = KafkaSettings(f"127.0.0.1:{somebody.getsockname()[1]}")
        with forwarding(settings, outbox) as links:
            wait_until(lambda: links.state(LinkName.KAFKA) == FAILING, "it is logged")
            assert links.reports()[LinkName.KAFKA].reason == "the store fails: disk I/O error"


def test_without_receipts_forwarded_is_done() -> None:
    outbox = CountingOutbox(*readings(1))
    outbox.mark_forwarded(Batch(1, 1, "topic-1", {}))

    with receipting(KafkaSettings("127.0.0.1:1"), outbox, enabled=False):
        wait_for_count(lambda: processed(outbox), 1, "it is processed")


@pytest.mark.guarantee(4)
@pytest.mark.kafka
@pytest.mark.parametrize(
    ("commit", "reason"),
    [
        (lambda kafka: kafka.commit(None, kafka.receipt("wrong").replace("wrong", "wrong,")), "in another form"),
        (lambda kafka: kafka.commit(None, ""), "a foreign consumer"),
        (lambda kafka: kafka.commit(10**6, kafka.receipt("wrong")), "is beyond the log's end"),
        (
            lambda kafka: kafka.commit(None, kafka.receipt("wrong"), leader_epochs=dict.fromkeys(range(4), 9)),
            "is of leader epoch 9, but epoch 0 answers",
        ),
    ],
)
def test_a_commit_that_is_no_receipt_holds_and_pins_nothing_until_a_true_one_stands_there(
    kafka: KafkaTopic,
    outbox: CountingOutbox,
    caplog: pytest.LogCaptureFixture,
    commit: Callable[[KafkaTopic], None],
    reason: str,
) -> None:
    commit(kafka)

    with receipting(kafka.settings(), outbox):
        wait_until(lambda: bool(outbox.fact(RECEIPTS_HELD)), "it is held")
        wait_for_polls(outbox)
        assert processed(outbox) == 0
        assert caplog.text.count("receipts=held") == 1
        hold = read_hold(outbox.fact(RECEIPTS_HELD))
        assert hold is not None
        assert reason in hold.reason
        kafka.commit(None, kafka.receipt())
        wait_for_count(lambda: processed(outbox), EVENTS, "all are processed")
        wait_until(lambda: read_hold(outbox.fact(RECEIPTS_HELD)) is None, "commands beside the agent read it")

    assert "receipts=flowing" in caplog.text
    assert outbox.fact(RECEIPTS_TABLE) == "table-1"


@pytest.mark.guarantee(4)
@pytest.mark.kafka
def test_where_any_commit_counts_what_a_foreign_consumer_has_read_is_processed_and_no_more(
    kafka: KafkaTopic, outbox: CountingOutbox
) -> None:
    with receipting(kafka.settings(), outbox, any_commit=True):
        wait_for_polls(outbox)
        assert processed(outbox) == 0
        kafka.commit(None, "", leader_epochs={})
        wait_for_count(lambda: processed(outbox), EVENTS, "all are processed")
    assert outbox.fact(RECEIPTS_TABLE) is None


TABLE = "a199db6a-28c3-4828-8c77-370382fddc32"


RECEIPT = Receipt(TABLE, 17, "nDCRGbaQT4C6Yy0VbBGzCg")


class Overread:
    """The client's value if the bytes beyond the end are not UTF-8."""

    @property
    def metadata(self) -> str:
        return str(RECEIPT).encode().__add__(b"\xff").decode()


def test_bytes_that_are_no_text_are_cut_off() -> None:
    assert read_receipt(cast("TopicPartition", Overread())) == RECEIPT


class Unsettled:
    """A client whose group's coordinator is not elected yet, as for the first group of a new cluster."""

    def __init__(self, *answers: int) -> None:
        self._answers = list(answers)

    def committed(self, question: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        if self._answers:
            raise KafkaException(KafkaError(self._answers.pop(0)))
        return [TopicPartition(one.topic, one.partition, 7) for one in question]


def read(consumer: Unsettled) -> dict[int, TopicPartition]:
    group = GroupOffsets(cast("AdminClient", None), cast("Consumer", consumer), "topic", LastError())
    return group._committed([0, 1], threading.Event())


def test_a_coordinator_that_is_being_elected_is_asked_again() -> None:
    waiting = (
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    )
    assert {number: answer.offset for number, answer in read(Unsettled(*waiting)).items()} == {0: 7, 1: 7}


def test_a_refusal_is_told_at_once() -> None:
    with pytest.raises(KafkaException, match="GROUP_AUTHORIZATION_FAILED"):
        read(Unsettled(KafkaError.GROUP_AUTHORIZATION_FAILED))


class Elected:
    """A client of a leader that was just elected: its log ends at the record for readers, for a moment."""

    def __init__(self) -> None:
        headers: list[tuple[str, str | bytes | None]] = [(STATEMENT, b"gw-1 e1 42 1763706000123 trusted time 0")]
        self._answers = [
            Message(topic="topic", partition=0, offset=7, error=KafkaError(KafkaError._PARTITION_EOF)),
            Message(topic="topic", partition=0, offset=7, headers=headers),
        ]

    def assign(self, _: object) -> None:
        pass

    def unassign(self) -> None:
        pass

    def poll(self, _: float) -> Message:
        return self._answers.pop(0)


@pytest.mark.guarantee(4)
def test_a_record_that_its_leader_does_not_show_yet_is_waited_for() -> None:
    labels = read_labels(cast("Consumer", Elected()), "topic", {0: 7}, threading.Event())
    assert labels == {0: RecordLabel("gw-1", "e1", 42)}


VIEW = View("id", {0: PartitionView(0, None, 9, LEADERS[0])})


class Session:
    """A session without a producer: what it acks and marks."""

    def __init__(self, shared: SharedRound) -> None:
        self.shared = shared
        self.outbox = MemoryOutbox()
        self.window = InFlightWindow(8)
        self._acked = 0

    def ack(self, partition: int = 0) -> None:
        self._acked += 1
        self.outbox.append(*readings(1, self._acked))
        batch = in_flight(self._acked, 1)
        self.window.add(batch)
        batch.report(None, delivered(partition, self._acked))
        self.window.advance()
        self.shared.acked = self.window.noted

    def mark(self, to: int) -> None:
        for batch in self.window.pop_confirmed(to):
            self.outbox.mark_forwarded(batch.batch("id", LEADERS))

    def answer(self, acked: Acked) -> Sequence[Batch]:
        """Return what a poll gets that has noted these acks."""
        with ThreadPoolExecutor(1) as poller:
            polled = poller.submit(self.shared.confirm, acked, VIEW)
            wait_until(lambda: polled.done() or self.shared._answer is not None, "the poll has its answers")
            if (answer := self.shared.collect(self.window)) is not None:
                self.mark(answer.acked.to)
                answer.hand_over(self.outbox, self.window.confirmed_to)
            return polled.result()


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setattr(shared_round, "MARK_SECONDS_MAX", 0.2)
    return Session(SharedRound(30.0))


@pytest.mark.guarantee(4)
def test_a_poll_gets_what_was_acked_before_its_first_question_and_nothing_later(session: Session) -> None:
    session.ack()
    session.ack()
    noted = session.shared.acked
    session.ack()

    assert [batch.last for batch in session.answer(noted)] == [1, 2]
    assert session.outbox.new == 1


@pytest.mark.guarantee(4)
def test_a_poll_gets_nothing_once_later_acks_are_confirmed(session: Session) -> None:
    session.ack()
    noted = session.shared.acked
    session.ack()
    session.mark(2)

    assert not session.answer(noted)


@pytest.mark.guarantee(4)
def test_the_answers_of_a_former_session_confirm_nothing(session: Session) -> None:
    session.ack()
    noted = session.shared.acked
    session.window = InFlightWindow(8)

    assert not session.answer(noted)
    assert session.outbox.new == 1


def test_without_an_answer_of_each_leader_nothing_is_confirmed(session: Session) -> None:
    session.ack(partition=1)

    assert not session.answer(session.shared.acked)
    assert session.outbox.new == 1


@pytest.mark.guarantee(4)
@pytest.mark.kafka
def test_one_round_confirms_and_receipts_what_was_acked(kafka: KafkaTopic) -> None:
    outbox, shared = MemoryOutbox(*readings(10)), SharedRound(30.0)
    with forwarding(kafka.settings(), outbox, shared=shared):
        wait_for_count(lambda: shared.acked.events, 10, "all are acked")
        assert outbox.new == 10
        kafka.commit(None, kafka.receipt())
        with receipting(kafka.settings(), outbox, shared=shared) as links:
            wait_for_count(lambda: processed(outbox), 10, "all are processed")
            assert links.state(LinkName.RECEIPTS) == FLOWING
        to = shared.acked.to
        outbox.append(*readings(10, 10))
        wait_until(lambda: shared.acked.to > to and shared.acked.events == 10, "more are acked")
    assert outbox.new == 0  # a stop does not wait for a round


@pytest.mark.parametrize(("poll_seconds", "seconds"), [(30.0, 90), (300.0, 360), (3_600.0, 660)])
def test_acks_wait_for_a_late_round_and_less_than_the_alert_of_events_that_are_not_sent(
    poll_seconds: float, seconds: int
) -> None:
    assert SharedRound(poll_seconds).patience_ms == seconds * 1_000


def test_a_long_interval_ends_once_many_events_are_acked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.forward.receipts.poller.ROUND_SECONDS_MIN", 0.01)
    shared, settings = SharedRound(3_600.0), ReceiptSettings(poll_seconds=3_600.0)
    parts = (KafkaSettings("127.0.0.1:1"), settings, GATEWAY, MemoryOutbox(), Links(SystemClock()), Random(7))
    poller = ReceiptPoller(*parts, shared=shared)
    shared.acked = Acked(None, 1, ROUND_EVENTS)
    assert not poller._wait(threading.Event())
