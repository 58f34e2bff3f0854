"""The audit's command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cloud import kafka_options
from cloud.settings import DELTA, POSTGRES, seconds
from contract.receipt import GROUP_DEFAULT
from contract.topics import EVENTS


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """The options of the audit's command line."""

    bootstrap_servers: str
    topic: str
    group: str
    table: str
    quarantine: str
    connection: Path | None
    """File with PostgreSQL's connection string; None for a Delta table."""
    output: str
    report: str | None
    grace_seconds: int
    properties: dict[str, str]


def parse(arguments: Sequence[str]) -> AuditSettings:
    """Read the arguments; wrong usage ends the process with status 2 and a message."""
    parser = argparse.ArgumentParser(prog="audit.py", description="Account for every label of the topic.")
    add = parser.add_argument
    add("--bootstrap-servers", required=True, metavar="HOST:PORT,…")
    add("--topic", default=EVENTS, help="default: %(default)s")
    add("--group", default=GROUP_DEFAULT, help="group whose committed offsets are the receipts; default: %(default)s")
    add("--sink", choices=(DELTA, POSTGRES), default=DELTA, help="where the table is; default: %(default)s")
    add("--table", required=True, metavar="PATH", help="folder of the Delta table, or PostgreSQL table")
    add("--quarantine", metavar="PATH", help="default: <table>_quarantine")
    add("--connection", type=Path, metavar="FILE", help="file with libpq's connection string, for --sink postgres")
    add("--output", required=True, metavar="PATH", help="folder of the audit's own tables; created if absent")
    add("--report", metavar="FILE", help="write a report as an HTML page")
    add(
        "--grace",
        type=seconds,
        default="1h",
        metavar="TIME",
        help="time by which a label may arrive after a later one of its epoch; default: %(default)s",
    )
    kafka_options.add_options(parser, "Kafka's Java client")
    given = parser.parse_args(arguments)
    if (given.sink == POSTGRES) != (given.connection is not None):
        parser.error("--connection FILE and --sink postgres require each other")
    table = given.table.rstrip("/")
    return AuditSettings(
        bootstrap_servers=given.bootstrap_servers,
        topic=given.topic,
        group=given.group,
        table=table,
        quarantine=(given.quarantine or f"{table}_quarantine").rstrip("/"),
        connection=given.connection,
        output=given.output.rstrip("/"),
        report=given.report,
        grace_seconds=given.grace,
        properties=kafka_options.properties(given),
    )
