"""The audit's command line."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cloud import command_line, sinks
from cloud.settings import add_time
from cloud.sinks import Tables

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
    gateways: Path | None
    """The keys of the gateways (`cloud.gateways`); without them, each digest that the table states is believed."""


def parse(arguments: Sequence[str]) -> AuditSettings:
    """Read the arguments; wrong usage ends the process with status 2 and a message."""
    options = parser()
    given = options.parse_args(arguments)
    tables, output = sinks.read(options, given), given.output.rstrip("/")
    properties = command_line.properties(given)
    return command_line.read(AuditSettings, given, tables=tables, output=output, properties=properties)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the audit's options."""
    about = "Account for every label of the topic, independently of the job's code, and name what is missing."
    parser = command_line.new_parser("audit", about, EXAMPLES)
    add = parser.add_argument
    command_line.add_topic(parser)
    sinks.add_options(parser)
    add("--output", required=True, metavar="PATH", help="folder of the audit's own tables; created if absent")
    add("--report", metavar="FILE", help="write a report as an HTML page")
    add("--metrics-file", type=Path, metavar="FILE", help="write metrics for the node exporter of Prometheus (*.prom)")
    grace_help = "time by which a label may arrive after a later one of its epoch"
    add_time(parser, "--grace", "grace_seconds", "1h", grace_help)
    add(
        "--verify",
        type=_share,
        default=0.0,
        metavar="SHARE",
        help="share of the new records whose fingerprints are computed again, 0 to 1; default: %(default)s",
    )
    command_line.add_gateways(parser, "digests count only if their records have the MAC of such a key")
    command_line.add_properties(parser, is_java=True)
    return parser


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"expected a share from 0 to 1; found {text!r}")
    return share
