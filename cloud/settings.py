"""The job's command line, read and checked once."""

import argparse
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import permutations
from pathlib import Path

from cloud import command_line, hooks, sinks
from cloud.errors import StopError
from cloud.hooks import Hook
from cloud.sinks import Tables
from contract.fields import RETENTION_SECONDS
from contract.receipt import TOPIC_ID_CHARACTERS, Receipt

_DURATION = re.compile(r"(\d+) ?(s|m|h|d|seconds?|minutes?|hours?|days?)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_TABLE_ID = re.compile(r"[0-9A-Za-z-]+")
_UUID_CHARACTERS = 36
METADATA_BYTES_MAX = 4096
"""What a broker takes beside a committed offset, by its default of offset.metadata.max.bytes."""
SUCCEEDS_CHARACTERS_MAX = METADATA_BYTES_MAX - len(str(Receipt("t" * _UUID_CHARACTERS, 0, "i" * TOPIC_ID_CHARACTERS)))

EXAMPLES = """examples:
  oncegate-cloud job --bootstrap-servers localhost:9092 --table ./events --checkpoint ./checkpoint
  oncegate-cloud job --master spark://spark-1:7077 --bootstrap-servers kafka-1:9092,kafka-2:9092 \\
    --table s3a://plant/events --checkpoint s3a://plant/checkpoint --window 2h --kafka-properties credential:kafka
  oncegate-cloud job --bootstrap-servers kafka-1:9092 --sink postgres --connection /etc/oncegate/postgres \\
    --table plant.events --checkpoint ./checkpoint --devices devices.csv

exit status: 0 ended by SIGTERM or SIGINT, with the batch finished; 1 a failure, which the log names; 2 wrong usage
"""


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """The topic that is read, and the group that receives the receipts."""

    bootstrap_servers: str
    topic: str
    group: str
    offsets_per_trigger_max: int
    properties: dict[str, str]
    """Properties of Kafka's Java client."""


@dataclass(frozen=True, slots=True)
class JobSettings:
    """The options of the job's command line."""

    kafka: KafkaSettings
    tables: Tables
    checkpoint: str
    window_seconds: int
    trigger_seconds: int
    retention_seconds: int
    succeeds: str | None
    read_again: bool = False
    """Whether a new checkpoint begins at the topic's earliest offset; events in the table are not written again."""
    devices: str | None = None
    gateways: Path | None = None
    """Without it, records are taken for those of the gateway that they name."""
    metrics: tuple[str, int] | None = None
    """Host and port of the metrics for Prometheus."""
    transform: Hook | None = None
    effects: Hook | None = None
    effects_seconds_max: int = 600

    def check_folders(self) -> None:
        """Raise StopError where a folder is within another: maintenance removes foreign files from a table's folder."""
        for inner, outer in permutations((*self.tables.folders, self.checkpoint), 2):
            if sinks.is_within(inner, outer):
                raise StopError(f"{inner} is within {outer}: table, quarantine and checkpoint need separate folders")


def parse(arguments: Sequence[str]) -> JobSettings:
    """Read the arguments; wrong usage ends the process with status 2 and a message."""
    options = parser()
    given = options.parse_args(arguments)
    tables = sinks.read(options, given)
    if not (given.transform is None and given.effects is None) and not tables.kind.is_processing:
        options.error(f"--sink {tables.kind.name} takes neither --transform nor --effects")
    if given.change_feed is not None:
        if tables.kind is not sinks.DELTA:
            options.error(f"--sink {tables.kind.name} has no --change-feed")
        tables = replace(tables, change_feed_seconds=given.change_feed)
    kafka = command_line.read(KafkaSettings, given, properties=command_line.properties(given))
    checkpoint = given.checkpoint.rstrip("/")
    return command_line.read(JobSettings, given, kafka=kafka, tables=tables, checkpoint=checkpoint)


def seconds(text: str) -> int:
    """Return a duration such as 90s, 10m, 2h, 7d or '10 minutes' in seconds."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 90s, 10m, 2h or 7d")
    return int(match[1]) * _SECONDS[match[2][0]]


def add_time(  # what an option has
    parser: argparse.ArgumentParser,
    option: str,
    dest: str,
    default: str,
    help_: str,
    read: Callable[[str], int] = seconds,
) -> None:
    """Add an option that is a duration."""
    help_ += "; default: %(default)s"
    parser.add_argument(option, dest=dest, type=read, default=default, metavar="TIME", help=help_)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the job's options."""
    about = "Write every event of the topic into the table once, and commit receipts for the gateways."
    parser = command_line.new_parser("job", about, EXAMPLES)
    command_line.add_topic(parser)
    command_line.add_gateways(parser)
    sinks.add_options(parser, "; created if absent")
    _add_own_options(parser)
    add_shared_options(parser)
    command_line.add_properties(parser, is_java=True)
    return parser


def _add_own_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--devices",
        metavar="FILE",
        help="CSV or Parquet with the columns device, name, site, tags; read again when it changes",
    )
    add("--checkpoint", required=True, metavar="PATH", help="folder of Spark's checkpoint; created if absent")
    # Each batch reads the whole state, and what is older than a part of the window is looked up (decision 80).
    add_time(parser, "--window", "window_seconds", "1h", "time for which the state keeps events", _window)
    add_time(parser, "--trigger", "trigger_seconds", "2s", "time between batches")
    add(
        "--max-offsets-per-trigger",
        dest="offsets_per_trigger_max",
        type=partial(command_line.number, most=1_000_000_000),
        default=400_000,
        metavar="N",
        help="default: %(default)s",
    )
    add(
        "--change-feed",
        type=_retention,
        nargs="?",
        const="1d",
        metavar="TIME",
        help="record changes of the Delta table for readers that stream it, and keep its log for TIME (%(const)s)",
    )
    add(
        "--read-again",
        action="store_true",
        help="begin a new checkpoint at the topic's earliest offset; events in the table are not written again",
    )


def add_shared_options(parser: argparse.ArgumentParser) -> None:
    """Add what the consumer without Spark has, too."""
    add = parser.add_argument
    add(
        "--succeeds",
        type=table_id,
        metavar="ID[,ID]",
        help="ids of the tables that this one replaces, so that gateways accept the new one",
    )
    add(
        "--retention",
        dest="retention_seconds",
        type=_retention,
        default=f"{RETENTION_SECONDS // 86_400}d",
        metavar="TIME",
        help="the gateways' identity.retention (%(default)s)",
    )
    add(
        "--transform",
        type=hooks.find,
        metavar="MODULE:FUNCTION",
        help="your function of the new rows, before they are in the table: docs/processing.md",
    )
    add(
        "--effects",
        type=hooks.find,
        metavar="MODULE:FUNCTION",
        help="your function of rows and key, called with the rows that are new in the table, before the receipts",
    )
    effects_help = "time after which a call of --effects has failed, and the program ends"
    add_time(parser, "--effects-limit", "effects_seconds_max", "10m", effects_help)
    add("--metrics", type=address, metavar="HOST:PORT", help="serve metrics for Prometheus at /metrics of this address")


def _window(text: str) -> int:
    if (window := seconds(text)) < 4:
        raise argparse.ArgumentTypeError("a window of less than 4 seconds is too short")
    return window


def _retention(text: str) -> int:
    if (retention := seconds(text)) == 0:
        raise argparse.ArgumentTypeError("a retention of 0 has no period within which an id is unique")
    return retention


def table_id(text: str) -> str:
    """Return ids of tables, with commas between them."""
    if not all(map(_TABLE_ID.fullmatch, text.split(","))):
        raise argparse.ArgumentTypeError(f"{text!r} is not a table id")
    if len(text) > SUCCEEDS_CHARACTERS_MAX:
        raise argparse.ArgumentTypeError(
            f"{len(text)} characters of table ids; a receipt has room for {SUCCEEDS_CHARACTERS_MAX}: leave out those "
            "that no gateway has pinned any more"
        )
    return text


def address(text: str) -> tuple[str, int]:
    """Return host and port."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)
