"""What the forwarder takes from Kafka's clients: the same steps with a real broker, and with the schedules' Kafka.

A difference is a fault of `tests/schedules/kafka`.
"""

from collections.abc import Callable
from random import Random
from threading import Event
from typing import Any, Final

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from agent.forward.kafka.client import LastError, open_admin, open_reader, producer_config, raw_metadata
from agent.forward.kafka.record import encode
from agent.forward.kafka.topic import TopicView, TopicWatch
from agent.forward.modes.at_least_once import AtLeastOnce
from agent.forward.modes.exactly_once import ExactlyOnce
from agent.forward.receipts.group_offsets import read_labels
from cloud.committed import Committed
from tests.agent.forward.broker import LinkedTopic
from tests.agent.forward.events import readings
from tests.agent.forward.modes.answer_link import AnswerLink, Request
from tests.agent.forward.running import GATEWAY
from tests.schedules import threads
from tests.schedules.kafka import clients
from tests.schedules.kafka.cluster import TOPIC, Cluster
from tests.schedules.kafka.coordinator import Tear
from tests.schedules.kafka.transactional import TransactionalProducer
from tests.schedules.scheduler import Process, Scheduler
from tests.support.memory_outbox import stored

PARTITIONS: Final = 4
JOB, MARKERS = "oncegate-cloud", "oncegate-outbox-gw"
SECONDS_MAX, POLL_SECONDS = 30.0, 0.02
CLIENT_MS: Final = {"socket.timeout.ms": "2000", "message.timeout.ms": "3000"}
STEPS_MAX: Final = 200_000
SEEDS: Final = range(3)


class LosingCluster(Cluster):
    lost: tuple[str, bool] | None = None

    def _send(self, what: str, arrive: Callable[[], None], lost: Callable[[], None]) -> None:
        if self.lost is not None and self.lost[0] in what and what.endswith(" answered") == self.lost[1]:
            self.lost = None
            lost()
        else:
            super()._send(what, arrive, lost)


class Simulated:
    """A topic of the schedules, and their clients."""

    topic = TOPIC

    def __init__(self, scheduler: Scheduler, seed: int) -> None:
        self._scheduler = scheduler
        self._cluster = LosingCluster(scheduler, Random(seed), lambda: 0, PARTITIONS)
        self.stop: Any = threads.Event(scheduler)
        """Never set."""

    def producer(self, transactional_id: str = "") -> Any:
        kind = TransactionalProducer if transactional_id else clients.Producer
        return kind(self._scheduler, self._cluster, {**CLIENT_MS, "transactional.id": transactional_id})

    def admin(self) -> Any:
        return clients.AdminClient(self._scheduler, self._cluster, {})

    def reader(self, group: str) -> Any:
        return clients.Consumer(self._scheduler, self._cluster, {"group.id": group})

    def commit(self, offset: int, metadata: str) -> None:
        """Commit an offset of each partition as the job."""
        self._cluster.commit_offsets({number: Committed(offset, 0, metadata) for number in range(PARTITIONS)}, JOB)

    def make_topic_anew(self) -> None:
        self._cluster.recreate(keeps_offsets=True)

    def delete_before(self, offset: int) -> None:
        """Delete records of partition 0."""
        self._cluster.expire(0, offset)

    def silence(self) -> None:
        """Answer no producer's request any more."""
        self._cluster.leaderless.add(0)

    def lose(self, request: Request, *, arrives: bool) -> None:
        """Lose the next request of a kind, or its answer."""
        self._cluster.lost = {Request.PRODUCE: "produces", Request.END_TXN: "committed"}[request], arrives

    def tear(self) -> None:
        """Answer the next commit as carried out that reaches neither the topic nor the group's offsets."""
        self._cluster.coordinator.tears = [Tear.BOTH]

    def delay_commit(self) -> None:
        """Let the next commit arrive only once it was repeated, and the next transaction has begun."""
        self._cluster.coordinator.delayed = 1.0

    def deliver_commit(self) -> None:
        """Let it arrive."""


class Real:
    """A topic on a broker behind a link, and the agent's clients."""

    def __init__(self, side: LinkedTopic, link: AnswerLink) -> None:
        self._side, self._link, self._settings = side, link, side.settings()
        self.topic = side.topic
        self.stop: Any = Event()

    def producer(self, transactional_id: str = "") -> Any:
        name = f"{transactional_id}.{self.topic}"
        fixed = ExactlyOnce(self._settings, name).fixed if transactional_id else AtLeastOnce().fixed
        return Producer({**producer_config(self._settings, fixed), **CLIENT_MS, "log_level": 0})

    def admin(self) -> Any:
        return open_admin(self._settings, LastError())

    def reader(self, group: str) -> Any:
        return open_reader(self._settings, f"{group}.{self.topic}", LastError(), unstable=group == MARKERS)

    def commit(self, offset: int, metadata: str) -> None:
        self._side.commit(offset, metadata, f"{JOB}.{self.topic}")

    def make_topic_anew(self) -> None:
        self._side.delete_topic()
        self._side.create_topic()

    def delete_before(self, offset: int) -> None:
        self._side.delete_before({0: offset})

    def silence(self) -> None:
        self._link.hold(Request.PRODUCE)

    def lose(self, request: Request, *, arrives: bool) -> None:
        (self._link.lose if arrives else self._link.lose_request)(request)

    def tear(self) -> None:
        self._link.fake_commit()

    def delay_commit(self) -> None:
        self._link.delay_commit()

    def deliver_commit(self) -> None:
        self._link.deliver_commit()


class Case:
    """What a step does with the clients of either, and sees."""

    def __init__(self, kafka: Simulated | Real) -> None:
        self.kafka = kafka
        self._watch = TopicWatch(kafka.admin(), kafka.topic, LastError())
        self.reports: list[tuple[int | None, int | None]] = []
        """Offset, or the code of an error."""

    def transactional(self) -> Any:
        producer = self.kafka.producer("gw")
        producer.init_transactions(SECONDS_MAX)
        return producer

    def hand_over(self, producer: Any, *numbers: int, partition: int = 0) -> None:
        """Hand over records with these sequences in their labels."""

        def report(error: KafkaError | None, message: Any) -> None:
            self.reports.append((message.offset(), None) if error is None else (None, error.code()))

        for number in numbers:
            key, value, headers = encode(stored(number, next(readings(1))), GATEWAY)
            producer.produce(self.kafka.topic, value, key, partition, report, headers=list(headers))

    def send(self, producer: Any, *numbers: int, partition: int = 0) -> list[int | None]:
        """Send records, and return their offsets."""
        before = len(self.reports)
        self.hand_over(producer, *numbers, partition=partition)
        self.serve(producer)
        assert len(self.reports) == before + len(numbers)
        return [offset for offset, _ in self.reports[before:]]

    def serve(self, producer: Any) -> None:
        """Wait until everything is reported."""
        self.until(lambda: producer.poll(0) == 0 and len(producer) == 0)

    def mark(self, producer: Any, marker: str) -> None:
        """Make a marker part of a transaction."""
        group = self.kafka.reader(MARKERS).consumer_group_metadata()
        producer.send_offsets_to_transaction([TopicPartition(self.kafka.topic, 0, 7, marker)], group, SECONDS_MAX)

    def view(self) -> TopicView:
        return self._watch.read_view(self.kafka.stop)

    def ends(self) -> tuple[int, int]:
        """Return where partition 0 ends for all readers, and for those of committed records."""
        every, stable = (self._watch.ends([0], self.kafka.stop, stable=stable)[0] for stable in (False, True))
        assert every.leader_epoch == stable.leader_epoch == 0
        return every.offset, stable.offset

    def await_end(self, end: int) -> None:
        self.until(lambda: self.ends() == (end, end))

    def sequences(self, *offsets: int) -> list[int]:
        """Return those of the records that readers of committed ones find at offsets; 0 where there is none."""
        reader = self.kafka.reader(JOB)
        return [read_labels(reader, self.kafka.topic, {0: one}, self.kafka.stop)[0].sequence for one in offsets]

    def committed(self, group: str) -> tuple[int, bytes, int | None]:
        places = [TopicPartition(self.kafka.topic, 0)]
        (found,) = self.kafka.reader(group).committed(places, timeout=SECONDS_MAX)
        assert found.error is None
        return found.offset, raw_metadata(found)[:7], found.leader_epoch

    def until(self, condition: Callable[[], bool]) -> None:
        assert any(condition() or self.kafka.stop.wait(POLL_SECONDS) for _ in range(int(SECONDS_MAX / POLL_SECONDS)))


class Steps(Case):
    """Each method is run on its own."""

    def records_of_a_partition_are_reported_in_order_with_their_offsets(self) -> None:
        producer = self.kafka.producer()
        assert self.send(producer, *range(1, 21)) == list(range(20))
        assert self.send(producer, 21) == [20]
        assert self.sequences(0, 20) == [1, 21]
        assert self.ends() == (21, 21)

    def the_key_decides_the_partition(self) -> None:
        self.send(self.kafka.producer(), 1, 2, 3, partition=-1)
        assert sorted(end.offset for end in self.view().ends.values()) == [0, 0, 0, 3]

    def what_is_sent_again_is_there_once(self) -> None:
        producer = self.kafka.producer()
        for arrives in (False, True):
            self.kafka.lose(Request.PRODUCE, arrives=arrives)
            self.send(producer, *range(1, 6))
        assert self.reports == [(offset, None) for offset in range(10)]
        assert self.ends() == (10, 10)

    def what_is_purged_is_reported_as_failed(self) -> None:
        producer = self.kafka.producer()
        self.hand_over(producer, 1, 2)
        producer.purge()
        self.serve(producer)
        assert [offset for offset, _ in self.reports] == [None, None]
        assert {code for _, code in self.reports} <= {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}

    def what_nobody_answers_in_time_is_reported_as_failed(self) -> None:
        producer = self.kafka.producer()
        self.send(producer, 1)
        self.kafka.silence()
        self.send(producer, 2, 3)
        assert self.reports == [(0, None), (None, KafkaError._MSG_TIMED_OUT), (None, KafkaError._MSG_TIMED_OUT)]

    def a_topic_made_anew_has_another_id_and_no_records(self) -> None:
        producer = self.kafka.producer()
        self.send(producer, 1, 2)
        before = self.view()
        self.kafka.make_topic_anew()
        after = self.view()
        assert after.id != before.id
        assert {end.offset for end in after.ends.values()} == {0}
        assert self.send(producer, 3) == [0]

    def deleted_records_are_no_longer_there(self) -> None:
        self.send(self.kafka.producer(), 1, 2, 3)
        self.kafka.delete_before(2)
        assert self.sequences(1, 2) == [0, 3]
        assert self.ends() == (3, 3)

    def a_group_has_what_was_committed_last(self) -> None:
        self.send(self.kafka.producer(), 1, 2)
        assert self.committed(JOB)[0] < 0
        self.kafka.commit(1, "earlier")
        self.kafka.commit(2, "receipt")
        assert self.committed(JOB) == (2, b"receipt", 0)

    def readers_get_to_an_open_transaction_and_past_an_ended_one(self) -> None:
        producer = self.transactional()
        producer.begin_transaction()
        assert self.send(producer, 1, 2) == [0, 1]
        assert self.ends() == (2, 0)
        producer.commit_transaction(SECONDS_MAX)
        self.await_end(3)  # with its control record
        producer.begin_transaction()
        assert self.send(producer, 3) == [3]
        producer.abort_transaction(SECONDS_MAX)
        self.await_end(5)
        assert self.sequences(0, 1, 2, 3, 4) == [1, 2, 0, 0, 0]

    def a_marker_is_there_with_its_transaction_and_not_without_it(self) -> None:
        producer = self.transactional()
        for marker, end in (("earlier", producer.commit_transaction), ("aborted", producer.abort_transaction)):
            producer.begin_transaction()
            self.send(producer, 1)
            self.mark(producer, marker)
            end(SECONDS_MAX)
        self.await_end(4)
        self.until(lambda: self.committed(MARKERS) == (7, b"earlier", None))

    def a_later_producer_ends_what_an_earlier_one_has_begun_and_fences_it(self) -> None:
        earlier = self.transactional()
        earlier.begin_transaction()
        self.send(earlier, 1)
        later = self.transactional()
        self.await_end(2)
        with pytest.raises(KafkaException) as fenced:
            earlier.commit_transaction(SECONDS_MAX)
        assert (fenced.value.args[0].code(), fenced.value.args[0].fatal()) == (KafkaError._FENCED, True)
        for call in (earlier.begin_transaction, lambda: earlier.poll(0), lambda: self.hand_over(earlier, 2)):
            with pytest.raises(KafkaException):
                call()
        earlier.poll(0)  # it raises once
        later.begin_transaction()
        assert self.send(later, 3) == [2]
        later.commit_transaction(SECONDS_MAX)
        self.await_end(4)
        assert self.sequences(0, 2) == [0, 3]

    def a_commit_that_is_sent_again_is_carried_out_once(self) -> None:
        producer = self.transactional()
        for number, arrives in enumerate((False, True)):
            producer.begin_transaction()
            self.send(producer, number + 1)
            self.kafka.lose(Request.END_TXN, arrives=arrives)
            producer.commit_transaction(SECONDS_MAX)
            self.await_end(2 * number + 2)
        assert self.sequences(0, 2) == [1, 2]

    def a_transaction_that_was_not_ended_shares_the_outcome_of_the_next(self) -> None:
        producer = self.transactional()
        producer.begin_transaction()
        self.send(producer, 1)
        self.mark(producer, "marker")
        self.kafka.tear()
        producer.commit_transaction(SECONDS_MAX)
        assert self.ends() == (1, 0)
        producer.begin_transaction()
        self.send(producer, 2)
        producer.abort_transaction(SECONDS_MAX)
        self.await_end(3)
        assert self.sequences(0, 1) == [0, 0]
        assert self.committed(MARKERS)[0] < 0

    def a_late_commit_ends_the_transaction_that_is_open_then(self) -> None:
        producer = self.transactional()
        producer.begin_transaction()
        self.send(producer, 1)
        self.kafka.delay_commit()
        producer.commit_transaction(SECONDS_MAX)
        self.await_end(2)
        producer.begin_transaction()
        self.send(producer, 2)
        self.kafka.deliver_commit()
        self.await_end(4)
        assert self.sequences(0, 2) == [1, 2]


STEPS: Final = [name for name in vars(Steps) if not name.startswith("_")]


@pytest.mark.parametrize("step", STEPS)
def test_the_simulated_kafka(step: str) -> None:
    for seed in SEEDS:
        scheduler, process = Scheduler(seed), Process("steps")
        simulated = Simulated(scheduler, seed)
        task = scheduler.spawn(process, "steps", lambda simulated=simulated: getattr(Steps(simulated), step)())  # type: ignore[misc]
        scheduler.run(lambda task=task: task.ended, STEPS_MAX)  # type: ignore[misc]
        if process.failure is not None:
            raise process.failure
        assert task.ended


@pytest.mark.kafka
@pytest.mark.parametrize("step", STEPS)
def test_a_real_broker(linked: LinkedTopic, link: AnswerLink, step: str) -> None:
    getattr(Steps(Real(linked, link)), step)()
