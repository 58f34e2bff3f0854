"""The sink of a run's events: a Delta table, a table in PostgreSQL, or the topic."""

import argparse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from contract.files import PropertiesError, read_properties
from contract.topics import EVENTS
from simulators.arguments import seconds
from simulators.evidence import delta, postgres, topic
from simulators.evidence.row import Row
from simulators.evidence.topic import Reading, Topic

_ERASE = """UPDATE {} SET device = 'urn:oncegate:erased', id = NULL, boot = NULL, offset_ms = NULL, data = NULL,
    units = NULL, ext = NULL, possible_duplicate_of = NULL, device_name = NULL, site = NULL, tags = NULL, raw = NULL"""
"""As in docs/table.md. Deleted rows would stop the job of a Delta table, and look to the audit like lost ones."""
STANDSTILL_SECONDS = 30.0
"""Several times the job's trigger interval and commit time on slow machines."""


@dataclass(frozen=True, slots=True)
class Sink:
    """The sink whose content is judged; at most one is set."""

    table: Path | None = None
    postgres: Path | None = None
    postgres_table: str = "events"
    topic: Topic | None = None
    standstill_seconds: float = STANDSTILL_SECONDS
    """How long no new row must have arrived before the rows are judged."""

    @property
    def named(self) -> bool:
        """Whether a sink is set."""
        return bool(self.table or self.postgres or self.topic)

    def require(self) -> None:
        """Raise TableError where the Delta table does not exist: its lack of rows is no evidence then."""
        if self.table is not None:
            delta.require(self.table)

    def erasure(self, devices: str) -> str | None:
        """Return the SQL that erases the events of devices with this name prefix; None where no table is named."""
        if self.table is None and self.postgres is None:
            return None
        table = self.postgres_table if self.table is None else f"delta.`{self.table.absolute()}`"
        return f"{_ERASE.format(table)}\nWHERE device LIKE '{devices}%';"

    @contextmanager
    def reading(self, devices: str, begun: Mapping[int, int]) -> Iterator[Reading]:
        """Open the sink for the rows of devices with this name prefix; a topic from these offsets on."""
        if self.topic is not None:
            with topic.reading(self.topic, devices, begun) as opened:
                yield opened
        else:
            yield Reading(self._rows(devices))

    def _rows(self, devices: str) -> Iterator[Row]:
        if self.table is not None:
            return delta.read(self.table, devices)
        if self.postgres is not None:
            return postgres.read(self.postgres, self.postgres_table, devices)
        return iter(())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that name a sink."""
    add = parser.add_argument
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--table", type=Path, metavar="PATH", help="Delta table in which the events end")
    one.add_argument(
        "--postgres", type=Path, metavar="FILE", help="connection string of the database in which the events end"
    )
    one.add_argument("--kafka", metavar="SERVERS", help="Kafka brokers with the topic in which the events end")
    add("--postgres-table", default="events", metavar="NAME", help="of --postgres (default: %(default)s)")
    add("--topic", default=EVENTS, metavar="NAME", help="of --kafka (default: %(default)s)")
    add(
        "--kafka-properties",
        type=Path,
        metavar="FILE",
        help="client properties for --kafka, such as security.protocol and sasl.password: lines NAME=VALUE in a file "
        "that only its owner reads",
    )
    add(
        "--standstill",
        type=seconds,
        default=STANDSTILL_SECONDS,
        metavar="SECONDS",
        help="judge once no row has arrived for this time (default: %(default)g)",
    )


def read_sink(parser: argparse.ArgumentParser, given: argparse.Namespace) -> Sink:
    """Return the sink from the arguments; wrong usage prints an error and exits with status 2."""
    if given.kafka_properties is not None and given.kafka is None:
        parser.error("--kafka-properties requires --kafka")
    try:
        properties = {} if given.kafka_properties is None else read_properties(given.kafka_properties)
    except PropertiesError as error:
        parser.error(f"--kafka-properties: {error}")
    named = None if given.kafka is None else Topic(given.kafka, given.topic, properties)
    return Sink(given.table, given.postgres, given.postgres_table, named, given.standstill)
