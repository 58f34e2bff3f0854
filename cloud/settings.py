"""Read the command line once, and check it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass

from contract.receipt import GROUP_DEFAULT
from contract.topics import EVENTS

_DURATION = re.compile(r"(\d+) ?(s|m|h|d|seconds?|minutes?|hours?|days?)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_TABLE_ID = re.compile(r"[0-9A-Za-z-]+")

EXAMPLE = """example (Delta and Kafka's client come as --jars, our own packages as --py-files; see the job's docstring):
  spark-submit --jars … --py-files oncegate.zip cloud/job.py \\
    --bootstrap-servers kafka-1:9092,kafka-2:9092 --table s3a://plant/events --checkpoint s3a://plant/checkpoint \\
    --window 2h --trigger 5s --kafka security.protocol=SSL
"""


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """Where the events come from, and to which group the receipts go."""

    bootstrap_servers: str
    topic: str
    group: str
    offsets_per_trigger_max: int
    properties: dict[str, str]
    """Any property of Kafka's Java client."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that the command line says."""

    kafka: KafkaSettings
    table: str
    quarantine: str
    checkpoint: str
    window_seconds: int
    trigger_seconds: int
    retention_seconds: int
    succeeds: str | None


def parse(arguments: Sequence[str]) -> Settings:
    """Read the arguments; wrong usage ends the process with status 2 and says why."""
    given = _parser().parse_args(arguments)
    kafka = KafkaSettings(
        given.bootstrap_servers, given.topic, given.group, given.max_offsets_per_trigger, dict(given.kafka)
    )
    table = given.table.rstrip("/")
    return Settings(
        kafka=kafka,
        table=table,
        quarantine=(given.quarantine or f"{table}_quarantine").rstrip("/"),
        checkpoint=given.checkpoint.rstrip("/"),
        window_seconds=given.window,
        trigger_seconds=given.trigger,
        retention_seconds=given.retention,
        succeeds=given.succeeds,
    )


def seconds(text: str) -> int:
    """Read a duration such as 90s, 10m, 2h, 7d or '10 minutes'."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration such as 90s, 10m, 2h or 7d")
    return int(match[1]) * _SECONDS[match[2][0]]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="job.py",
        description="Write every event of the topic into the table once, and give receipts.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--bootstrap-servers", required=True, metavar="HOST:PORT,…")
    add("--topic", default=EVENTS, help="default: %(default)s")
    add("--group", default=GROUP_DEFAULT, help="group whose committed offsets are the receipts; default: %(default)s")
    add("--table", required=True, metavar="PATH", help="folder of the Delta table; made when absent")
    add("--quarantine", metavar="PATH", help="folder of the quarantine's Delta table; default: <table>_quarantine")
    add("--checkpoint", required=True, metavar="PATH", help="folder of Spark's checkpoint; made when absent")
    add(
        "--window", type=_window, default="1h", metavar="TIME", help="how far back the state sees; default: %(default)s"
    )
    add("--trigger", type=seconds, default="2s", metavar="TIME", help="time between batches; default: %(default)s")
    add(
        "--retention", type=seconds, default="7d", metavar="TIME", help="the gateways' identity.retention (%(default)s)"
    )
    add("--max-offsets-per-trigger", type=_positive, default=400_000, metavar="N", help="default: %(default)s")
    add("--succeeds", type=_table_id, metavar="ID", help="id of the table that this one replaces: gateways pin anew")
    add(
        "--kafka", type=_property, action="append", default=[], metavar="NAME=VALUE", help="client property, repeatable"
    )
    return parser


def _window(text: str) -> int:
    if (window := seconds(text)) < 4:
        raise argparse.ArgumentTypeError("a window has at least 4 seconds")
    return window


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no positive number")
    return int(text)


def _table_id(text: str) -> str:
    if _TABLE_ID.fullmatch(text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no table id")
    return text


def _property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value
