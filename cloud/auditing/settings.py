"""The audit's command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cloud import kafka_options, sinks
from cloud.settings import seconds
from cloud.sinks import Tables
from contract.receipt import GROUP_DEFAULT
from contract.topics import EVENTS

EXAMPLES = """examples:
  oncegate-cloud audit --bootstrap-servers localhost:9092 --table ./events --output ./audit --report audit.html
  oncegate-cloud audit --bootstrap-servers kafka-1:9092 --sink postgres --connection /etc/oncegate/postgres \\
    --table plant.events --output ./audit

exit status: 0 every label is accounted for, or may still arrive; 1 a label is missing, unwritten, vanished or
ambiguous, an event is doubled, forged or in conflict, a section differs, or the audit failed; 2 wrong usage
"""


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """The options of the audit's command line."""

    bootstrap_servers: str
    topic: str
    group: str
    tables: Tables
    output: str
    report: str | None
    grace_seconds: int
    verify: float
    """The share of the records whose fingerprints are computed again."""
    properties: dict[str, str]
    metrics_file: Path | None
    """A file for the node exporter of Prometheus."""


def parse(arguments: Sequence[str]) -> AuditSettings:
    """Read the arguments; wrong usage ends the process with status 2 and a message."""
    options = parser()
    given = options.parse_args(arguments)
    return AuditSettings(
        bootstrap_servers=given.bootstrap_servers,
        topic=given.topic,
        group=given.group,
        tables=sinks.read(options, given),
        output=given.output.rstrip("/"),
        report=given.report,
        grace_seconds=given.grace,
        verify=given.verify,
        properties=kafka_options.properties(given),
        metrics_file=given.metrics_file,
    )


def parser() -> argparse.ArgumentParser:
    """Return the parser of the audit's options."""
    parser = argparse.ArgumentParser(
        prog="oncegate-cloud audit",
        description="Account for every label of the topic, independently of the job's code, and name what is missing.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--bootstrap-servers", required=True, metavar="HOST:PORT,…")
    add("--topic", default=EVENTS, help="default: %(default)s")
    add("--group", default=GROUP_DEFAULT, help="group whose committed offsets are the receipts; default: %(default)s")
    sinks.add_options(parser)
    add("--output", required=True, metavar="PATH", help="folder of the audit's own tables; created if absent")
    add("--report", metavar="FILE", help="write a report as an HTML page")
    add("--metrics-file", type=Path, metavar="FILE", help="write metrics for the node exporter of Prometheus (*.prom)")
    add(
        "--grace",
        type=seconds,
        default="1h",
        metavar="TIME",
        help="time by which a label may arrive after a later one of its epoch; default: %(default)s",
    )
    add(
        "--verify",
        type=_share,
        default=0.0,
        metavar="SHARE",
        help="share of the new records whose fingerprints are computed again, 0 to 1; default: %(default)s",
    )
    kafka_options.add_options(parser, is_java=True)
    return parser


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"expected a share from 0 to 1; found {text!r}")
    return share
