"""Write every event of the topic into PostgreSQL once, without Spark: result and offset in one transaction.

    oncegate-cloud consumer --bootstrap-servers localhost:9092 --connection ./postgres --table consumed

Up to as many consumers as there are partitions may run in one group.

Exit status: 0 ended by SIGTERM or SIGINT; 1 a failure, which the log names; 2 wrong usage.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from cloud import kafka_options
from cloud.errors import JobError, StopError
from cloud.plain_consumer.table import ConsumerTable, Move, StaleError
from cloud.plain_consumer.topic import TopicIdReader
from cloud.plain_consumer.values import Entry, read_message
from cloud.postgres.connection import read_connection
from cloud.runtime.outcome import exit_status
from cloud.runtime.program_log import log_to_stderr
from cloud.runtime.unbounded_calls import within
from cloud.sinks import table_name
from contract.topics import EVENTS

logger = logging.getLogger("cloud.consumer")

BATCH_MESSAGES_MAX = 5000
WAIT_SECONDS = 0.5
ANSWER_SECONDS_MAX = 30.0
"""The time limit of a commit and of closing the client."""
_HARMLESS = (KafkaError._MAX_POLL_EXCEEDED, KafkaError._PARTITION_EOF)
"""Errors after which the next poll is sufficient."""


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """The options of the command line."""

    bootstrap_servers: str
    topic: str
    group: str
    connection: Path
    table: str
    properties: dict[str, str]


def main(arguments: Sequence[str]) -> int:
    """Consume until a stop is requested; return the exit status."""
    settings = parse(arguments)
    log_to_stderr()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return exit_status(partial(_run, settings, stop), logger)


def _run(settings: ConsumerSettings, stop: threading.Event) -> int:
    connection = read_connection(settings.connection)
    with ConsumerTable(connection, settings.table, settings.group, settings.topic) as table:
        try:
            Reader(settings, table).run(stop)
        except KafkaException as error:
            raise JobError(str(error)) from error
    return 0


class Reader:
    """A member of the group, which writes the records of its partitions into the table."""

    def __init__(self, settings: ConsumerSettings, table: ConsumerTable) -> None:
        self._topic = settings.topic
        self._table = table
        self._topic_ids = TopicIdReader(settings.bootstrap_servers, settings.properties, settings.topic)
        self._topic_id = ""
        """Id of the topic that the table's offsets belong to."""
        self._has_unknown = False
        """Whether a key that is not known here has been reported."""
        self._next: dict[int, int] = {}
        """The table's next offset in each assigned partition, as far as known."""
        self._consumer = Consumer(
            {
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",  # records that retention has deleted are a loss that must be reported
                **settings.properties,
                "bootstrap.servers": settings.bootstrap_servers,
                "group.id": settings.group,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
            }
        )

    def run(self, stop: threading.Event) -> None:
        """Poll, write and commit until `stop` is set."""
        self._consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._lost, on_lost=self._lost)
        logger.info("stage=subscribed topic=%s", self._topic)
        try:
            while not stop.is_set():
                polled = self._consumer.consume(BATCH_MESSAGES_MAX, WAIT_SECONDS)
                if entries := [read_message(message) for message in polled if _is_record(message)]:
                    self._write(entries)
        finally:
            self._close()

    def _write(self, entries: list[Entry]) -> None:
        self._report_unknown(entries)
        ends = {entry.partition: entry.offset + 1 for entry in entries}  # the last of each: they come in order
        self._check_topic()
        moves = [Move(partition, self._next.get(partition, 0), end) for partition, end in ends.items()]
        try:
            rows = self._table.write(entries, moves, self._topic_id)
        except StaleError as error:
            logger.warning("stage=rejected error=%r", str(error))
            self._seek_to_table([place.partition for place in self._consumer.assignment()])
            return
        self._next |= ends
        logger.info("stage=committed records=%d rows=%d", len(entries), rows)

    def _report_unknown(self, entries: list[Entry]) -> None:
        """Report once that a later gateway sends what this release ignores."""
        names = sorted({name for entry in entries for name in entry.unknown})
        if names and not self._has_unknown:
            self._has_unknown = True
            logger.warning("stage=read unknown=%r hint='a later release of the cloud may know them'", names[:5])

    def _close(self) -> None:
        """Leave the group; without an answer in time, the group notices as after a crash."""
        try:
            within(ANSWER_SECONDS_MAX, self._consumer.close, "closing the client")
        except JobError as error:
            logger.warning("stage=closing error=%r", str(error))

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Begin at the table's offsets, whatever the group has committed in Kafka."""
        self._topic_id = self._topic_ids.read()
        self._next = self._table.next_offsets([place.partition for place in partitions], self._topic_id)
        consumer.assign([TopicPartition(self._topic, place.partition, self._start(place)) for place in partitions])
        logger.info("stage=assigned partitions=%s", sorted(place.partition for place in partitions))

    def _lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for place in partitions:
            self._next.pop(place.partition, None)
        logger.info("stage=revoked partitions=%s", sorted(place.partition for place in partitions))

    def _seek_to_table(self, partitions: list[int]) -> None:
        """Continue at the table's offsets, in partitions still assigned, after others have moved one of them.

        Nothing of the last poll is written, also in partitions without an offset in the table. A seek that fails ends
        the consumer: it would skip these records; the next start begins at the table's offsets.
        """
        self._next = self._table.next_offsets(partitions, self._topic_id)
        for place in self._places({one: self._start(TopicPartition(self._topic, one)) for one in partitions}):
            self._consumer.seek(place)

    def _check_topic(self) -> None:
        """Raise StopError where the topic was recreated; called after a read, so that it covers these records."""
        if (now := self._topic_ids.read()) != self._topic_id:
            raise StopError(
                f"topic {self._topic}: it was recreated while it was read, with the id {now} instead of "
                f"{self._topic_id}; none of its records is in the table"
            )

    def _start(self, place: TopicPartition) -> int:
        # Without an offset in the table: the beginning, which is not 0 where retention has deleted records.
        return self._next.get(place.partition) or self._consumer.get_watermark_offsets(place, timeout=30)[0]

    def _places(self, offsets: dict[int, int]) -> list[TopicPartition]:
        return [TopicPartition(self._topic, partition, offset) for partition, offset in offsets.items()]


def _is_record(message: Message) -> bool:
    error = message.error()
    if error is None:
        return True
    if error.code() == KafkaError._AUTO_OFFSET_RESET:
        raise JobError(
            f"partition {message.partition()}: the topic no longer has records that the table has not read "
            f"({error.str()}); to continue without them, correct the partition's row in the table of offsets"
        )
    if error.code() not in _HARMLESS and not error.retriable():
        raise KafkaException(error)
    logger.warning("stage=polling error=%r", str(error))
    return False


def parse(arguments: Sequence[str]) -> ConsumerSettings:
    """Read the arguments; wrong usage ends the process with status 2 and a message."""
    options = parser()
    given = options.parse_args(arguments)
    return ConsumerSettings(
        bootstrap_servers=given.bootstrap_servers,
        topic=given.topic,
        group=given.group,
        connection=given.connection,
        table=given.table,
        properties=kafka_options.properties(given),
    )


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = argparse.ArgumentParser(
        prog="oncegate-cloud consumer",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--bootstrap-servers", required=True, metavar="HOST:PORT,…")
    add("--topic", default=EVENTS, help="default: %(default)s")
    add("--group", default="oncegate-consumer", help="default: %(default)s")
    add(
        "--connection",
        type=kafka_options.secret_path,
        required=True,
        metavar="FILE",
        help="file with libpq's connection string, which only its owner may read",
    )
    add("--table", type=table_name, required=True, metavar="NAME", help="created if absent")
    kafka_options.add_options(parser, is_java=False)
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
