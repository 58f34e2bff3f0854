"""Whether the job detects that topic or log are no longer those that it has read, on a real broker."""

from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from cloud.errors import KafkaError, StopError
from cloud.runtime.shutdown import StopRequest
from cloud.settings import KafkaSettings
from cloud.stream.kafka_admin import KafkaAdmin
from cloud.stream.progress import Observer
from cloud.stream.receipts import Receipts
from cloud.stream.topic_log import LogEnd, TopicLog
from cloud.table.commits import Commit
from simulators.services.kafka.broker import Broker
from simulators.services.kafka.cut_log import cut_log
from tests.cloud.gateway import Gateway, configure, readings, send
from tests.cloud.running import PARTITIONS, CloudSide

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

GROUP = "g"
_IMPATIENT = {"default.api.timeout.ms": "1000", "request.timeout.ms": "1000"}


@dataclass(slots=True)
class Side:
    """One topic, and the job's check of it."""

    broker: Broker
    topic: str
    admin: KafkaAdmin
    log: TopicLog
    gateway: Gateway

    def send(self, count: int) -> None:
        """Send a batch of records to partition 0; Kafka keeps each batch whole."""
        start = self.gateway.sequence
        send(self.broker.bootstrap_servers, self.topic, self.gateway.records(readings(count, start=start)), 0)

    def recreate(self, partitions: int = PARTITIONS) -> None:
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap_servers})
        admin.delete_topics([self.topic], operation_timeout=30)[self.topic].result(30)
        self.broker.create_topics(self.topic, partitions=partitions)

    def read(self, end: int) -> Commit:
        """Return the commit of a table that has read partition 0 up to there."""
        ends = {0: end, **dict.fromkeys(range(1, PARTITIONS), 0)}
        before = Commit("t", "c", 1, -1, self.topic, self.admin.topic_id(), {}, {}, {})
        epochs = self.log.check(before, ends)
        return replace(before, batch=0, ends=ends, first=dict.fromkeys(ends, 0), epochs=epochs)


@pytest.fixture
def side(spark: SparkSession, broker: Broker) -> Side:
    topic = f"log.{uuid4().hex}"
    broker.create_topics(topic, partitions=PARTITIONS)
    admin = KafkaAdmin(spark, KafkaSettings(broker.bootstrap_servers, topic, GROUP, 1, {}))
    return Side(broker, topic, admin, TopicLog(admin, topic), Gateway())


@pytest.mark.guarantee(5)
def test_records_without_the_time_of_their_append_stop_the_job_until_one_has_it(side: Side) -> None:
    configure(side.broker, side.topic, "message.timestamp.type", "CreateTime")
    side.log.check_settings()  # an empty topic shows nothing
    side.send(5)
    with pytest.raises(StopError, match="ignores it"):
        side.log.check_settings()
    configure(side.broker, side.topic, "message.timestamp.type", "LogAppendTime")
    with pytest.raises(StopError, match="ignores it"):
        side.log.check_settings()
    side.send(1)
    side.log.check_settings()


@pytest.mark.guarantee(5)
def test_a_topic_that_is_compacted_stops_the_job_until_it_is_not(side: Side) -> None:
    side.log.check_settings()
    for policy in ("compact", "compact,delete"):
        configure(side.broker, side.topic, "cleanup.policy", policy)
        with pytest.raises(StopError, match=r"compacts it.*Set cleanup\.policy=delete"):
            side.log.check_settings()
    configure(side.broker, side.topic, "cleanup.policy", "delete")
    side.log.check_settings()


@pytest.mark.heavy
def test_no_question_about_a_deleted_topic_creates_it(spark: SparkSession, tmp_path: Path) -> None:
    with Broker(tmp_path / "kafka", properties={"auto.create.topics.enable": "true"}) as broker:
        servers = broker.bootstrap_servers
        admin = KafkaAdmin(spark, KafkaSettings(servers, "deleted", GROUP, 1, _IMPATIENT))
        with pytest.raises(KafkaError):
            admin.truncations({0: LogEnd(5, 0)})
        assert "deleted" not in AdminClient({"bootstrap.servers": servers}).list_topics(timeout=30).topics


@pytest.mark.heavy
@pytest.mark.parametrize("partitions", [PARTITIONS, 1])
def test_a_topic_that_was_recreated_stops_the_job_however_long_it_is(side: Side, partitions: int) -> None:
    side.send(5)
    read = side.read(5)
    side.recreate(partitions)
    side.send(20)
    with pytest.raises(StopError, match="deleted and recreated"):
        side.log.check(read, {0: 20})


@pytest.mark.heavy
def test_a_log_that_was_truncated_and_has_grown_again_stops_the_job(side: Side) -> None:
    for _ in range(3):
        side.send(10)
    read = side.read(30)
    cut_log(side.broker, side.topic, 0, 20)
    with pytest.raises(StopError, match="truncated below offset 30"):
        side.log.check(read, {})
    side.send(15)
    with pytest.raises(StopError, match="truncated below offset 30"):
        side.log.check(read, {0: 35})
    assert side.log.check(side.read(20), {0: 35})[0] > read.epochs[0]


@pytest.mark.guarantee(5)
@pytest.mark.heavy
def test_a_log_that_was_truncated_while_a_batch_was_read_gets_no_receipt(side: Side) -> None:
    side.send(10)
    before = side.read(10)
    side.send(10)
    epochs = side.log.check(before, {0: 20})
    written = replace(before, batch=1, ends={**before.ends, 0: 20}, epochs=epochs)
    cut_log(side.broker, side.topic, 0, 10)
    side.send(15)
    with pytest.raises(StopError, match="truncated below offset 20"):
        Receipts(side.admin, side.log, GROUP, None).commit(written)
    assert committed(side, 0).offset < 0


@pytest.mark.heavy
def test_a_receipt_says_under_which_leader_the_log_was_read(side: Side) -> None:
    side.send(10)
    side.broker.kill()
    side.broker.start()
    read = side.read(10)
    assert Receipts(side.admin, side.log, GROUP, None).commit(read)
    found = committed(side, 0)
    assert (found.offset, found.leader_epoch) == (10, read.epochs[0])
    assert read.epochs[0] > 0


@pytest.mark.guarantee(5)
@pytest.mark.heavy
@pytest.mark.parametrize(("epochs_ahead", "end"), [(1, 10), (0, 20)])
def test_a_leader_of_the_past_gives_no_verdict(side: Side, epochs_ahead: int, end: int) -> None:
    """To a job with a later epoch, or a longer log of the same epoch, the broker is a deposed leader."""
    side.send(10)
    read = side.read(10)
    log = TopicLog(side.admin, side.topic, patience_seconds=1)
    later = replace(read, epochs={0: read.epochs[0] + epochs_ahead})
    with pytest.raises(KafkaError, match="former leaders"):
        log.check(later, {0: end})
    with pytest.raises(KafkaError, match="former leaders"):  # known epochs are kept
        log.check(replace(read, epochs={}), {0: end})
    side.broker.kill()
    side.broker.start()  # an election that it has won
    side.send(10)
    assert log.check(later, {0: end})[0] > read.epochs[0]


def test_no_answer_is_no_verdict(side: Side, spark: SparkSession) -> None:
    read = side.read(0)
    nobody = KafkaSettings("127.0.0.1:1", side.topic, GROUP, 1, _IMPATIENT)
    with pytest.raises(KafkaError):
        TopicLog(KafkaAdmin(spark, nobody), side.topic).check(read, {})


def committed(side: Side, partition: int) -> TopicPartition:
    settings = {"bootstrap.servers": side.broker.bootstrap_servers, "group.id": GROUP}
    with Consumer(settings) as reader:
        return reader.committed([TopicPartition(side.topic, partition)], timeout=30)[0]


TRIGGER_OFFSETS = 10


@pytest.mark.guarantee(5)
@pytest.mark.heavy
def test_what_was_fetched_before_the_log_was_cut_is_never_written(
    spark: SparkSession, broker: Broker, cloud: CloudSide
) -> None:
    gateway, stop = Gateway(), StopRequest()
    for start in (0, 10, 20):  # the first batch takes ten, and its consumer fetches them all
        cloud.send(gateway.records(readings(10, start=start)), 0)

    class Cutter(Observer):
        def receipted(self, batch: int) -> None:
            if batch == 0:
                cut_log(broker, cloud.topic, 0, TRIGGER_OFFSETS)
                cloud.send(Gateway("gw-2", "00000000000000b2").records(readings(20, start=100)), 0)
            if batch == 2:
                stop.set()

    cloud.run_here(spark, Cutter(), stop, "--max-offsets-per-trigger", str(TRIGGER_OFFSETS))
    assert cloud.ids() == [str(number) for number in (*range(10), *range(100, 120))]
