"""The relay on a real broker: groups of real consumers, and receipts as a gateway judges them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.request import urlopen
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka import KafkaError as Code

from agent.config.settings import KafkaSettings
from agent.forward.kafka.client import LastError, open_admin, open_reader
from agent.forward.receipts.group_offsets import GroupOffsets
from agent.forward.receipts.rules import Rules, Verdict, choose_table, decide
from agent.store.port import Batch, Offsets
from cloud.committed import Committed
from cloud.errors import KafkaError, StopError
from cloud.relaying.group import FollowedGroup, GroupView
from cloud.relaying.relay import Relay, RelaySettings
from cloud.stream.group_kafka import GroupKafka
from cloud.stream.topic_log import LogEnd
from contract.receipt import Receipt, parse
from simulators.services import ports
from simulators.services.kafka.broker import Broker
from simulators.services.kafka.cut_log import cut_log
from simulators.services.process import Command, Process
from tests.agent.forward.broker import KafkaTopic
from tests.cloud.gateway import Gateway, readings, send
from tests.support.waiting import wait_for_count, wait_until

pytestmark = pytest.mark.kafka

ROOT = Path(__file__).resolve().parents[3]
WAIT_SECONDS_MAX = 120.0


class Worker:
    """A member of a group, which commits what it has read when it is told to."""

    def __init__(self, side: Side, group: str, **properties: str) -> None:
        given = {name.replace("_", "."): value for name, value in properties.items()}
        self.client = Consumer(
            {
                "bootstrap.servers": side.broker.bootstrap_servers,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                **given,
            }
        )
        self.client.subscribe([side.topic])
        side.workers.append(self)

    def join(self) -> Worker:
        """Return once the group has given it partitions."""
        wait_until(lambda: self.client.consume(1, 0) == [] and bool(self.client.assignment()), "the member has joined")
        return self

    def work(self, count: int) -> Worker:
        read = 0

        def more() -> int:
            nonlocal read
            read += len(self.client.consume(count - read, 0.5))
            return read

        wait_for_count(more, count, "records that the member has read")
        self.client.commit(asynchronous=False)
        return self


class Side:
    """A topic of one partition, the groups of a test, and a relay that looks when it is told to."""

    def __init__(self, broker: Broker, partitions: int = 1) -> None:
        self.broker, self.name, self.gateway = broker, uuid4().hex[:12], Gateway()
        self.topic = f"relay.{self.name}"
        self.workers: list[Worker] = []
        self.tools = KafkaTopic(broker.bootstrap_servers, self.topic)
        self.tools.partitions = partitions
        self.topic_id = self.tools.create_topic()

    def settings(self, *groups: str, without: tuple[str, ...] = (), succeeds: str | None = None) -> RelaySettings:
        servers = self.broker.bootstrap_servers
        return RelaySettings(servers, self.topic, groups, without, f"receipts.{self.name}", succeeds, None, {})

    def relay(self, *groups: str, without: tuple[str, ...] = (), succeeds: str | None = None) -> Relay:
        """Return a relay that has looked once."""
        settings = self.settings(*groups, without=without, succeeds=succeeds)
        started = Relay(GroupKafka(settings.bootstrap_servers, self.topic, {}), settings)
        started.look()
        return started

    def group(self, name: str = "a") -> str:
        return f"{name}.{self.name}"

    def send(self, count: int) -> None:
        records = self.gateway.records(readings(count, start=self.gateway.sequence))
        send(self.broker.bootstrap_servers, self.topic, records, 0)

    def commit(self, group: str, offset: int, metadata: str = "") -> None:
        """Commit an offset without joining the group, as a reset or a program such as Flink does."""
        with Consumer({"bootstrap.servers": self.broker.bootstrap_servers, "group.id": group}) as anybody:
            anybody.commit(offsets=[TopicPartition(self.topic, 0, offset, metadata)], asynchronous=False)

    def leave(self) -> None:
        """Close all members, and wait until their groups have none."""
        for worker in self.workers:
            worker.client.close()
        self.workers.clear()

    def verdict(self, lowest: int, highest: int) -> Verdict:
        """Return what a gateway that takes any table's receipts decides on a batch at these offsets."""
        kafka = KafkaSettings(self.broker.bootstrap_servers, self.topic, "at-least-once", {})
        errors, group = LastError(), f"receipts.{self.name}"
        reader = open_reader(kafka, group, errors)
        try:
            view = GroupOffsets(open_admin(kafka, errors), reader, self.topic, errors).read_view([0], threading.Event())
        finally:
            reader.close()
        receipt = view.partitions[0].receipt
        rules = Rules(None if receipt is None else receipt.table)
        epoch = view.partitions[0].leader_epoch
        return decide(Batch(1, 9, self.topic_id, {0: Offsets(lowest, highest, epoch)}), view, rules).verdict


@pytest.fixture
def side(broker: Broker) -> Iterator[Side]:
    made = Side(broker)
    yield made
    made.leave()


@pytest.mark.guarantee(5)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_an_event_is_processed_once_all_groups_have_committed_it(side: Side, protocol: str) -> None:
    side.send(10)
    first, second = (Worker(side, side.group(name), group_protocol=protocol) for name in ("a", "b"))
    first.work(4)
    second.work(2)
    running = side.relay(side.group("a"), side.group("b"))
    assert [side.verdict(0, 1), side.verdict(4, 4)] == [Verdict.RETURN, Verdict.WAIT]
    first.work(6)
    running.look()
    assert side.verdict(4, 9) is Verdict.WAIT
    second.work(4)
    running.look()
    assert [side.verdict(4, 5), side.verdict(4, 9), side.verdict(3, 5)] == [
        *(Verdict.PROCESSED, Verdict.WAIT, Verdict.RETURN)
    ]
    second.work(4)
    running.look()
    assert side.verdict(4, 9) is Verdict.PROCESSED


def test_with_the_jobs_group_among_the_groups_processed_means_everybody(side: Side) -> None:
    side.send(10)
    job = side.group("job")
    side.tools.commit(10, side.tools.receipt("events", first=2), group=job)
    worker = Worker(side, side.group()).work(3)
    running = side.relay(side.group(), job)
    worker.work(7)
    running.look()
    assert [side.verdict(3, 9), side.verdict(2, 9)] == [Verdict.PROCESSED, Verdict.RETURN]
    side.send(5)
    worker.work(5)
    running.look()
    assert side.verdict(10, 14) is Verdict.WAIT
    side.tools.commit(15, side.tools.receipt("events", first=2), group=job)
    running.look()
    assert side.verdict(10, 14) is Verdict.PROCESSED
    side.tools.commit(15, side.tools.receipt("other"), group=job)
    with pytest.raises(StopError, match=r"table other, which does not succeed events"):
        running.look()


@pytest.mark.guarantee(5)
def test_a_topic_made_anew_holds_and_the_next_relay_begins_where_its_groups_are(side: Side) -> None:
    side.send(10)
    Worker(side, side.group()).work(5)
    running = side.relay(side.group())
    side.leave()
    side.tools.delete_topic()
    side.topic_id = side.tools.create_topic()
    side.send(10)
    with pytest.raises(StopError, match=r"deleted and recreated"):
        running.look()
    side.commit(side.group(), 5)
    side.relay(side.group())
    assert side.verdict(0, 4) is Verdict.RETURN


@pytest.mark.guarantee(5)
@pytest.mark.heavy
@pytest.mark.parametrize(("has_epochs", "grown"), [(True, 200), (True, 0), (False, 200)])
def test_a_log_that_was_truncated_holds(side: Side, has_epochs: bool, grown: int) -> None:
    side.send(5)
    side.send(150)
    if has_epochs:
        Worker(side, side.group()).work(155)
        side.leave()
        running = side.relay(side.group())
    else:
        side.commit(side.group(), 155)
        running = side.relay(without=(side.group(),))
    cut_log(side.broker, side.topic, 0, 5)
    side.send(grown)
    with pytest.raises(StopError, match=r"truncated below offset 155"):
        look_until_answered(running)
    if grown:
        side.relay(side.group())
        assert side.verdict(5, 154) is Verdict.RETURN


def look_until_answered(running: Relay) -> None:
    """Look again while a broker that was restarted does not answer yet."""

    def looked() -> bool:
        with suppress(KafkaError):
            running.look()
            return True
        return False

    wait_until(looked, "the broker answers")


@pytest.mark.heavy
def test_a_leader_that_was_elected_holds_nothing(side: Side) -> None:
    side.send(5)
    worker = Worker(side, side.group()).work(3)
    running = side.relay(side.group())
    side.broker.kill()
    side.broker.start()
    look_until_answered(running)
    side.send(5)
    worker.work(7)
    look_until_answered(running)
    assert side.verdict(3, 9) is Verdict.PROCESSED


def test_a_partition_where_a_group_never_committed_waits_alone(broker: Broker) -> None:
    side = Side(broker, partitions=2)
    side.send(10)
    worker = Worker(side, side.group()).work(5)
    running = side.relay(side.group())
    worker.work(5)
    running.look()
    assert (running.waiting, side.verdict(5, 9)) == ({1: side.group()}, Verdict.PROCESSED)
    worker.client.commit(offsets=[TopicPartition(side.topic, 1, 0)], asynchronous=False)
    running.look()
    assert running.waiting == {}
    side.leave()


@pytest.mark.guarantee(5)
def test_a_restarted_relay_goes_on_where_it_stood_and_sends_again_what_moved_meanwhile(side: Side) -> None:
    side.send(20)
    worker = Worker(side, side.group()).work(5)
    first = side.relay(side.group())
    worker.work(5)
    first.look()
    side.relay(side.group())
    assert side.verdict(5, 9) is Verdict.PROCESSED
    side.leave()
    side.commit(side.group(), 15)  # a reset while no relay runs
    Worker(side, side.group()).work(5)
    side.relay(side.group())
    assert [side.verdict(10, 14), side.verdict(15, 19)] == [Verdict.RETURN] * 2
    side.leave()
    side.commit(side.group(), 3)  # and one to an earlier offset
    side.relay(side.group())
    assert [side.verdict(0, 2), side.verdict(3, 4)] == [Verdict.RETURN, Verdict.WAIT]


def test_two_relays_of_the_same_groups_contradict_each_other_in_nothing(side: Side) -> None:
    side.send(20)
    worker = Worker(side, side.group()).work(5)
    relays = [side.relay(side.group())]
    worker.work(5)
    relays.append(side.relay(side.group()))
    worker.work(5)
    for running in (*relays, *relays):
        running.look()
        assert side.verdict(10, 14) is Verdict.PROCESSED


def test_receipts_of_another_table_in_the_group_hold_until_they_are_succeeded(side: Side) -> None:
    side.send(10)
    side.tools.commit(10, side.tools.receipt("events"), group=f"receipts.{side.name}")
    worker = Worker(side, side.group()).work(5)
    with pytest.raises(StopError, match=r"receipts of table events, by another program.*--succeeds events"):
        side.relay(side.group())
    running = side.relay(side.group(), succeeds="events")
    worker.work(5)
    running.look()
    table = side.settings(side.group()).table
    assert choose_table("events", [Receipt(table, 0, side.topic_id, "events")]) == table
    assert side.verdict(5, 9) is Verdict.PROCESSED


def place(offset: int, metadata: str = "") -> dict[int, Committed]:
    return {0: Committed(offset, 0, metadata)}


NOBODY, ANNA, BERT = frozenset[str](), frozenset({"anna"}), frozenset({"bert"})


@pytest.mark.parametrize(
    ("has_members", "seen", "now", "earliest", "since"),
    [
        (True, (ANNA, ANNA), (ANNA, ANNA), 0, 5),
        (True, (ANNA, ANNA), (BERT, ANNA | BERT), 0, 5),
        (True, (ANNA, ANNA), (ANNA, BERT), 0, 9),
        (True, (NOBODY, ANNA), (ANNA, ANNA), 0, 9),
        (True, (ANNA, ANNA), (ANNA, ANNA), 6, 9),  # retention has deleted what it would have read next
        (False, (NOBODY, NOBODY), (NOBODY, NOBODY), 0, 5),
        (False, (NOBODY, NOBODY), (NOBODY, NOBODY), 6, 9),
    ],
)
def test_only_a_member_that_was_there_all_the_time_vouches_for_a_move(
    has_members: bool,
    seen: tuple[frozenset[str], frozenset[str]],
    now: tuple[frozenset[str], frozenset[str]],
    earliest: int,
    since: int,
) -> None:
    group = FollowedGroup("g", "t" * 22, has_members)
    group.follow(GroupView(seen[0], place(5), seen[1]), {}, {0: 0})
    group.follow(GroupView(now[0], place(9), now[1]), {}, {0: earliest})
    assert group.since == {0: since}


def test_an_offset_that_an_open_transaction_may_change_is_asked_for_again() -> None:
    """As one of Kafka Streams that was killed before its commit; it is not taken for one that was deleted."""
    kafka = GroupKafka("127.0.0.1:1", "events", {"log_level": "0"})
    unstable = SimpleNamespace(partition=0, offset=-1001, error=Code(Code.UNSTABLE_OFFSET_COMMIT))
    kafka._groups["g"] = cast("Consumer", SimpleNamespace(committed=lambda *_, **__: [unstable]))
    with pytest.raises(KafkaError, match="group g: its offsets: partition 0: "):
        kafka.committed("g", [0])


def skipping_kafka() -> Any:
    """Return a log of ten records, of which a member reads five, and skips the rest once retention has deleted some."""

    def committed(group: str, _: object) -> dict[int, Committed]:
        if group != "g":
            return dict(kafka.given)
        kafka.first = 7 if kafka.is_busy else 0
        return place(10 if kafka.is_busy else 5)

    def commit(_: str, offsets: dict[int, int], metadata: dict[int, str], leader_epochs: dict[int, int]) -> None:
        kafka.given = {0: Committed(offsets[0], leader_epochs[0], metadata[0])}

    kafka: Any = SimpleNamespace(
        first=0,
        is_busy=False,
        given=place(0),
        committed=committed,
        commit=commit,
        is_compacted=lambda: False,
        topic_id=lambda: "t" * 22,
        partitions=lambda: [0],
        members=lambda _: ANNA,
        earliest=lambda _: {0: kafka.first},
        ends=lambda partitions: dict.fromkeys(partitions, LogEnd(10, 0)),
        truncations=lambda _: {},
    )
    return kafka


OF_SKIPPING = RelaySettings("", "events", ("g",), (), "receipts", None, None, {})


def test_what_retention_deletes_while_the_relay_looks_is_not_taken_for_read() -> None:
    kafka = skipping_kafka()
    relay = Relay(kafka, OF_SKIPPING)
    relay.look()
    kafka.is_busy = True
    relay.look()
    receipt = parse(kafka.given[0].metadata)
    assert receipt is not None
    assert (receipt.first, kafka.given[0].offset) == (10, 10)


def test_a_compacted_topic_is_refused() -> None:
    kafka = skipping_kafka()
    kafka.is_compacted = lambda: True
    with pytest.raises(StopError, match="topic events: Kafka compacts it"):
        Relay(kafka, OF_SKIPPING)


@pytest.mark.parametrize(
    ("later", "told"),
    [
        (place(3), "gone back from 5 to 3"),
        ({}, "was deleted, or has expired"),
        (place(9), "moved from 5 to 9 while it"),
    ],
)
def test_what_cannot_be_the_groups_own_work_holds(later: dict[int, Committed], told: str) -> None:
    group = FollowedGroup("g", "t" * 22, True)
    group.follow(GroupView(NOBODY, place(5), NOBODY), {}, {0: 0})
    with pytest.raises(StopError, match=told):
        group.follow(GroupView(NOBODY, later, NOBODY), {}, {0: 0})


def test_the_command_names_why_it_holds_and_needs_no_spark(side: Side, tmp_path: Path) -> None:
    side.send(10)
    worker = Worker(side, side.group()).work(5)
    [port] = ports.free(1)
    program = (
        "import sys; from cloud import relay; assert 'pyspark' not in sys.modules; sys.exit(relay.main(sys.argv[1:]))"
    )
    words = ("--bootstrap-servers", side.broker.bootstrap_servers, "--topic", side.topic, "--group", side.group())
    more = ("--receipts-group", f"receipts.{side.name}", "--metrics", f"127.0.0.1:{port}")
    running = Process(Command("relay", (sys.executable, "-c", program, *words, *more), tmp_path / "relay.log", ROOT))
    running.start()
    try:
        running.wait_for_log("stage=first partition=0 first=5", WAIT_SECONDS_MAX)
        wait_until(lambda: side.verdict(0, 4) is Verdict.RETURN, "the first receipt")
        worker.work(5)
        wait_until(lambda: side.verdict(5, 9) is Verdict.PROCESSED, "the receipt")
        side.leave()
        side.tools.forget_offsets(side.group())
        running.wait_for_log("stage=held reason=", WAIT_SECONDS_MAX)
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        assert "oncegate_relay_held 1.0" in text
        assert "oncegate_relay_look_timestamp_seconds " in text
        assert running.terminate() == 1
    finally:
        running.kill()
