"""Write every event of the topic into PostgreSQL once, and give the gateways receipts, without Spark and Java.

    oncegate-cloud consumer --bootstrap-servers localhost:9092 --connection ./postgres --table events

The table is the job's, and audit, query and trace read it with `--sink postgres`. Up to as many consumers as there are
partitions share the work.

Exit status: 0 ended by SIGTERM or SIGINT; 1 a failure, which the log names; 2 wrong usage.
"""

import argparse
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka import KafkaError as Code

from cloud import command_line, settings
from cloud.errors import JobError, KafkaError, StopError
from cloud.gateways import GatewayFile
from cloud.hooks import Hook
from cloud.plain_consumer.devices import described
from cloud.plain_consumer.effects import DueEffects
from cloud.plain_consumer.metrics import ConsumerMetrics
from cloud.plain_consumer.records import Appended, Descriptions, Judged, judge
from cloud.plain_consumer.table import ConsumerTable, Place, StaleError
from cloud.plain_consumer.transform import DictTransform, Made, untransformed
from cloud.postgres.connection import connected, read_connection
from cloud.runtime.outcome import run_until_stopped
from cloud.runtime.repeated import Repeated
from cloud.runtime.unbounded_calls import within
from cloud.sinks import table_name
from cloud.stream.group_kafka import GroupKafka, headers_of
from cloud.stream.receipts import Receipts
from cloud.stream.topic_log import COMPACTED, ReadLog
from cloud.table.commits import Commit
from contract.fields import VERSION

logger = logging.getLogger("cloud.consumer")


BATCH_MESSAGES_MAX = 5000
WAIT_SECONDS = 0.5
CLOSE_SECONDS_MAX = 30.0
POLL_SECONDS, POLL_SECONDS_MAX = 300, 86_400
"""Librdkafka's default and maximum of max.poll.interval.ms."""
_HARMLESS = (Code._MAX_POLL_EXCEEDED, Code._PARTITION_EOF)
"""Errors after which the next poll is sufficient."""
_LOST = (Code._AUTO_OFFSET_RESET, Code._LOG_TRUNCATION)
"""Errors about the log, which `Reader._resume` explains."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What is read, and as which member of the group."""

    bootstrap_servers: str
    topic: str
    group: str
    instance: str | None
    succeeds: str | None
    properties: dict[str, str]

    def member(self) -> Consumer:
        """Return a member that has not joined yet; what the contract requires cannot be overridden."""
        own = {} if self.instance is None else {"group.instance.id": self.instance}
        return Consumer(
            {
                **self.properties,
                **own,
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": self.group,
                "isolation.level": "read_committed",
                "partition.assignment.strategy": "cooperative-sticky",
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
            }
        )


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """The options of the command line."""

    subscription: Subscription
    connection: Path
    table: str
    quarantine: str
    retention_seconds: int
    devices: Path | None
    gateways: Path | None
    metrics: tuple[str, int] | None
    transform: Hook | None
    effects: Hook | None
    effects_seconds_max: int


def main(arguments: Sequence[str]) -> int:
    """Consume until a stop is requested; return the exit status."""
    return run_until_stopped(partial(_run, parse(arguments)), logger)


def _run(given: ConsumerSettings, stop: threading.Event) -> int:
    metrics, devices = ConsumerMetrics(given.metrics), described(given.devices)
    transform = untransformed if given.transform is None else DictTransform(given.transform)
    topic = given.subscription.topic
    gateways = None if given.gateways is None else GatewayFile(given.gateways, topic)
    names = given.table, given.quarantine, given.retention_seconds
    with connected(read_connection(given.connection)) as opened:
        table = ConsumerTable(opened, *names, keeps_new=given.effects is not None)
        effects = None
        if given.effects is not None:
            effects = DueEffects(Repeated(given.effects, given.effects_seconds_max, metrics), table)
        try:
            Reader(given.subscription, table, devices, metrics, gateways, transform, effects).run(stop)
        except KafkaException as error:
            raise JobError(f"Kafka's client: {error.args[0].str()}") from error
    return 0


class PlaceLog(ReadLog):
    """Checks that the topic is the one that the table has read."""

    if_truncated = (
        "Find out why; then delete the partition's row from the table of places and start again: it is read from its "
        "beginning, events in the table are not written again, and gateways send again what they still have"
    )
    if_replaced = "Use another table, with --succeeds and the id of this one"


class Reader:
    """Polls, writes and gives receipts."""

    def __init__(
        self,
        subscription: Subscription,
        table: ConsumerTable,
        devices: Callable[[], Descriptions],
        counts: ConsumerMetrics,
        gateways: GatewayFile | None = None,
        transform: Callable[[Sequence[Judged]], Made] = untransformed,
        effects: DueEffects | None = None,
    ) -> None:
        self._topic = subscription.topic
        self._table = table
        self._devices = devices
        self._gateways = gateways
        self._metrics = counts
        self._transform = transform
        self._effects = effects
        self._consumer = subscription.member()
        self._kafka = GroupKafka(
            *(subscription.bootstrap_servers, self._topic, subscription.properties, subscription.group, self._consumer)
        )
        self._log = PlaceLog(self._kafka, self._topic)
        self._receipts = Receipts(
            *(self._kafka, self._log, subscription.group, subscription.succeeds, self._check_places)
        )
        self._topic_id = ""
        self._places: dict[int, Place] = {}
        """The table's places in the assigned partitions."""
        self._paused: set[int] = set()
        """The partitions that are not read until the effects are done."""
        self._batch = 0
        self._is_due = False
        """Whether the places have changed since the last receipts."""
        self._is_stale = False
        """Whether another member has moved one of the places."""
        self._newest = VERSION
        self._retentions = {None, table.retention_seconds}
        """Those that gateways state and need not be reported."""
        self._has_unknown = False

    def run(self, stop: threading.Event) -> None:
        self._consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._lost, on_lost=self._lost)
        logger.info("stage=subscribed topic=%s table=%s", self._topic, self._table.id)
        try:
            while not stop.is_set():
                self.run_once()
        finally:
            self.close()

    def run_once(self) -> None:
        """Poll once, write what was read, and give the receipts that are due."""
        polled = self._consumer.consume(BATCH_MESSAGES_MAX, WAIT_SECONDS)
        records = [message for message in polled if self._is_record(message)]
        try:
            if self._is_stale:
                self._resume()
            elif records:
                self._write(records)
        except KafkaError as error:  # nothing is written, and all is read again
            logger.warning("stage=retrying error=%r", str(error))
            self._is_stale = True
        if not self._is_due or not self._effects_are_done():
            self._receipts.repeat()
        elif not self._is_stale:
            self._is_due = False
            if self._receipts.commit(self._read(self._places)):
                self._metrics.receipted()
        self._metrics.turned(self._lag())

    def close(self) -> None:
        """Leave the group; without an answer in time, the group notices as after a crash."""
        try:
            within(CLOSE_SECONDS_MAX, self._consumer.close, "closing the client")
        except JobError as error:
            logger.warning("stage=closing error=%r", str(error))

    def _write(self, polled: Sequence[Message]) -> None:
        """Write what is behind the places, unless the log has other records there by now."""
        records = [one for one in polled if (place := self._places.get(_partition(one))) and _offset(one) >= place.next]
        if not records:
            return
        began = time.monotonic()
        last = {_partition(message): message for message in records}  # they come in order
        was = {partition: self._places[partition] for partition in last}
        now = {p: Place(was[p].first, _offset(one) + 1, one.leader_epoch() or 0) for p, one in last.items()}
        try:
            epochs = self._log.check(self._read(now), {})
            if any(epochs[p] != place.epoch for p, place in was.items()):  # the client may not have asked a new leader
                self._log.check(self._read(was), {})
        except StopError as error:
            self._log.check(self._read(self._places), {})  # ends it where what the table has read is lost, too
            logger.warning("stage=dropped records=%d reason=%r", len(records), str(error))
            self._is_stale = True
            return
        now = {p: Place(place.first, place.next, epochs[p]) for p, place in now.items()}
        if self._gateways is not None:
            self._gateways.renewed()
        said = partial(judge, seen=datetime.now(UTC), known=self._devices(), gateways=self._gateways)
        judged = [said(message.key(), message.value(), headers_of(message), _appended(message)) for message in records]
        self._report_news(judged)
        try:
            written = self._table.write(self._transform(judged), was, now, self._topic, self._topic_id)
        except StaleError as error:
            logger.warning("stage=rejected error=%r", str(error))
            self._is_stale = True
            return
        self._places |= now
        self._batch += 1
        self._is_due = True
        self._metrics.wrote(written, judged, time.monotonic() - began)
        logger.info("batch=%d stage=committed records=%d rows=%d", self._batch, len(records), written.rows)

    def _effects_are_done(self) -> bool:
        """Make the due effects, and return whether they are done; reading pauses until then."""
        if self._effects is None:
            return True
        tell = partial(self._receipts.note_failing, self._read(self._places))
        if not self._effects(self._places, tell):
            self._pause(self._places)
            return False
        if self._paused:
            self._consumer.resume([TopicPartition(self._topic, partition) for partition in self._paused])
            self._paused.clear()
        return True

    def _pause(self, partitions: Iterable[int]) -> None:
        """Pause these partitions; resumed, they continue behind the last record that the client has returned."""
        new = set(partitions) - self._paused
        self._consumer.pause([TopicPartition(self._topic, partition) for partition in new])
        self._paused |= new

    def _report_news(self, judged: Sequence[Judged]) -> None:
        """Report each newer contract, each other retention, and the first content that this release ignores."""
        if (contract := max(one.contract for one in judged)) > self._newest:
            self._newest = contract
            logger.warning(
                "contract=%d known=%d effect='what it adds to the value outside ext is not in the table' "
                "hint='install the release of the cloud that belongs to the gateways'",
                *(contract, VERSION),
            )
        for retention in {one.retention_seconds for one in judged} - self._retentions:
            self._retentions.add(retention)
            logger.warning(
                "retention_seconds=%s effect='an id that is used again may count as a duplicate' "
                "hint='give --retention here the value of identity.retention on the gateways'",
                retention,
            )
        if not self._has_unknown and any(one.is_newer for one in judged):
            self._has_unknown = True
            logger.warning("batch=%d effect='words, headers or keys that this release ignores'", self._batch + 1)

    def _assigned(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        """Begin at the table's places, whatever the group has committed in Kafka (decision 5)."""
        begun = self._begin([one.partition for one in partitions])
        consumer.incremental_assign(self._positions(begun))
        if self._effects is not None:
            self._pause(begun)  # those of another member may be due
        self._places |= begun
        self._is_due = True
        logger.info("stage=assigned partitions=%s", sorted(begun))

    def _lost(self, _: Consumer, partitions: Sequence[TopicPartition]) -> None:
        for one in partitions:
            self._places.pop(one.partition, None)
            self._paused.discard(one.partition)
        self._is_due = True
        logger.info("stage=revoked partitions=%s", sorted(one.partition for one in partitions))

    def _begin(self, partitions: Sequence[int]) -> dict[int, Place]:
        """Return the table's places; at the topic's beginning where the table has none.

        Raise StopError where the topic is another one, is compacted, or has lost what the table has not read.
        """
        if self._kafka.is_compacted():
            raise StopError(f"topic {self._topic}: {COMPACTED}")
        self._topic_id = self._kafka.topic_id()
        there = self._table.places(self._topic_id)
        known = {partition: there[partition] for partition in partitions if partition in there}
        earliest = self._kafka.earliest(partitions)
        epochs = self._log.check(self._read(known), {p: earliest[p] for p in partitions if p not in known})
        for partition, place in known.items():
            if (first := earliest[partition]) > place.next:
                raise StopError(
                    f"topic {self._topic}, partition {partition}: its retention has deleted offsets {place.next} to "
                    f"{first - 1}, which the table has not read. Find out why the consumer was behind; then delete "
                    "the partition's row from the table of places, and start again: gateways send again what they have"
                )
        new = {p: Place(earliest[p], earliest[p], epochs[p]) for p in partitions if p not in known}
        self._table.begin(new, self._topic_id)
        there = self._table.places(self._topic_id)
        return {partition: there[partition] for partition in partitions}

    def _resume(self) -> None:
        """Continue at the table's places, without what was fetched; a seek that fails ends the consumer."""
        self._places = self._begin(list(self._places))
        for position in self._positions(self._places):
            self._consumer.seek(position)
        self._is_due, self._is_stale = True, False

    def _check_places(self) -> None:
        """Raise StaleError where the table has other places, before receipts are repeated."""
        there = self._table.places(self._topic_id)
        if any((found := there.get(p)) is None or found.next != place.next for p, place in self._places.items()):
            self._is_stale = True
            raise StaleError("another member has moved the table's places")

    def _positions(self, places: Mapping[int, Place]) -> list[TopicPartition]:
        return [TopicPartition(self._topic, p, place.next, leader_epoch=place.epoch) for p, place in places.items()]

    def _read(self, places: Mapping[int, Place]) -> Commit:
        """Return what the table has read, in the form of the job's commits."""
        ends = {partition: place.next for partition, place in places.items()}
        first = {partition: place.first for partition, place in places.items()}
        epochs = {partition: place.epoch for partition, place in places.items()}
        return Commit(self._table.id, "", 0, self._batch, self._topic, self._topic_id, {}, ends, first, epochs=epochs)

    def _lag(self) -> int:
        """Return the largest number of unread records in a partition, as far as the client knows."""
        known = partial(self._consumer.get_watermark_offsets, cached=True)
        ends = {partition: known(TopicPartition(self._topic, partition))[1] for partition in self._places}
        return max([0, *(end - self._places[partition].next for partition, end in ends.items())])

    def _is_record(self, message: Message) -> bool:
        error = message.error()
        if error is None:
            return True
        if error.code() in _LOST:
            self._is_stale = True
        elif error.code() not in _HARMLESS and not error.retriable():
            raise KafkaException(error)
        logger.warning("stage=polling error=%r", str(error))
        return False


def _partition(message: Message) -> int:
    return message.partition() or 0


def _offset(message: Message) -> int:
    return message.offset() or 0


def _appended(message: Message) -> Appended:
    kind, milliseconds = message.timestamp()
    return Appended(_partition(message), _offset(message), milliseconds if kind == TIMESTAMP_LOG_APPEND_TIME else None)


def parse(arguments: Sequence[str]) -> ConsumerSettings:
    """Read the arguments; wrong usage ends the process with status 2 and a message."""
    options = parser()
    given = options.parse_args(arguments)
    quarantine = given.quarantine or f"{given.table}_quarantine"
    if quarantine == given.table:
        options.error("argument --quarantine: must differ from --table")
    properties = _poll_within(given) | command_line.properties(given)
    subscription = command_line.read(Subscription, given, properties=properties)
    return command_line.read(ConsumerSettings, given, subscription=subscription, quarantine=quarantine)


def _poll_within(given: argparse.Namespace) -> dict[str, str]:
    """Return the property that keeps the member in the group during a call of the effects."""
    if given.effects is None:
        return {}
    return {"max.poll.interval.ms": str(min(POLL_SECONDS + given.effects_seconds_max, POLL_SECONDS_MAX) * 1000)}


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = command_line.new_parser("consumer", __doc__)
    add = parser.add_argument
    command_line.add_topic(parser)
    add(
        "--instance-id",
        dest="instance",
        metavar="NAME",
        help="a name of this instance that it keeps, so that a restart within session.timeout.ms moves no partition",
    )
    add(
        "--connection",
        type=command_line.secret_path,
        required=True,
        metavar="FILE",
        help="file with libpq's connection string, which only its owner may read",
    )
    add("--table", type=table_name, required=True, metavar="NAME", help="created if absent")
    add("--quarantine", type=table_name, metavar="NAME", help="table of the quarantine; default: <table>_quarantine")
    add(
        "--devices",
        type=Path,
        metavar="FILE",
        help="CSV with the columns device, name, site, tags; read again when it changes",
    )
    settings.add_shared_options(parser)
    command_line.add_gateways(parser)
    command_line.add_properties(parser, is_java=False)
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
