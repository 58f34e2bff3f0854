"""The command line of `oncegate-cloud trace`."""

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from cloud import command_line, sinks
from cloud.sinks import Tables
from cloud.tracing.facts import Label, Span, Wanted

RECORDS_MAX = 1_000_000
"""The default limit of the records of the topic that are read: about ten seconds."""
_FINGERPRINT = re.compile(r"[0-9a-f]{32}")
_EPOCH = re.compile(r"[0-9a-f]{16}")
_SEQUENCE = re.compile(r"[1-9][0-9]{0,17}")
DESCRIPTION = """\
Tell what has happened to an event, by its fingerprint or its label, or to a device's events of a time: whether it is in
the table, in quarantine, in the topic and receipted, or declared as lost by its gateway, and what to do next.
With --audit it also tells what the latest audit has found. Nothing is written.
"""
EXAMPLES = """examples:
  oncegate-cloud trace 1876d2e5f34f91105e52555b000b5edc --bootstrap-servers localhost:9092 --table ./events
  oncegate-cloud trace gw-1 5f1c0d6b6a0f4f1d 5158 --bootstrap-servers localhost:9092 --table ./events --audit ./audit
  oncegate-cloud trace --device urn:dev:mac:00158d0001a2b3c4 --since 2026-05-01T12:00 --until 2026-05-01T13:00 \\
    --bootstrap-servers localhost:9092 --sink postgres --connection /etc/oncegate/postgres --table plant.events

exit status: 0 the event is in the table (of a device: all that are known, and at least one); 1 it is not, or a failure;
2 wrong usage
"""


@dataclass(frozen=True, slots=True)
class TraceSettings:
    """The options of the command line."""

    wanted: Wanted | Span
    bootstrap_servers: str
    topic: str
    group: str
    tables: Tables
    audit: str | None
    records_max: int
    json: bool
    properties: dict[str, str]

    @property
    def needs_spark(self) -> bool:
        """Whether Spark reads the table, or an audit's."""
        return not self.tables.kind.is_database or self.audit is not None


def parse(arguments: Sequence[str]) -> TraceSettings:
    """Read the arguments; wrong usage ends the process with status 2 and a message."""
    options = parser()
    given = options.parse_args(arguments)
    return command_line.read(
        TraceSettings,
        given,
        wanted=_wanted(options, given),
        tables=sinks.read(options, given),
        audit=given.audit and given.audit.rstrip("/"),
        properties=command_line.properties(given),
    )


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    usage = "oncegate-cloud trace FINGERPRINT | GATEWAY EPOCH SEQUENCE | --device D --since T [--until T] [OPTIONS]"
    parser = command_line.new_parser("trace", DESCRIPTION, EXAMPLES, usage)
    add = parser.add_argument
    add("event", nargs="*", metavar="EVENT", help="the fingerprint (32 hex digits), or gateway, epoch and sequence")
    add("--device", metavar="DEVICE", help="trace the events of a device instead of one event")
    add("--since", type=_moment, metavar="TIME", help="2026-05-01 or 2026-05-01T12:00, in UTC unless it has an offset")
    add("--until", type=_moment, metavar="TIME", help="end of the time, exclusive; default: now")
    command_line.add_topic(parser)
    sinks.add_options(parser)
    add("--audit", metavar="PATH", help="folder of the audit's tables (its --output); read by Spark")
    add(
        "--records",
        dest="records_max",
        type=partial(command_line.number, most=1_000_000_000),
        default=RECORDS_MAX,
        metavar="N",
        help="read at most the latest N records of the topic; default: %(default)s",
    )
    add("--json", action="store_true", help="one JSON object")
    command_line.add_properties(parser, is_java=False)
    return parser


def _wanted(options: argparse.ArgumentParser, given: argparse.Namespace) -> Wanted | Span:
    if given.device is not None:
        if given.event or given.since is None:
            options.error("--device requires --since, and no other event")
        if given.until is not None and given.until <= given.since:
            options.error("argument --until: must be after --since")
        return Span(given.device, given.since, given.until)
    if given.since is not None or given.until is not None:
        options.error("--since and --until require --device")
    match given.event:
        case [fingerprint] if _FINGERPRINT.fullmatch(fingerprint.lower()):
            return Wanted(fingerprint.lower())
        case [gateway, epoch, sequence] if gateway and _EPOCH.fullmatch(epoch) and _SEQUENCE.fullmatch(sequence):
            return Wanted(label=Label(gateway, epoch, int(sequence)))
    return options.error(
        "expected a fingerprint (32 hex digits), or GATEWAY EPOCH SEQUENCE (16 hex digits, a number), "
        "or --device and --since"
    )


def _moment(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 2026-05-01T12:00") from None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)
