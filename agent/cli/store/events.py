"""`oncegate events`: the stored events, latest ones or as they arrive."""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from agent.cli.arguments import past_timestamp, positive
from agent.cli.failures import UsageError
from agent.cli.store.lines import Document, Printer, add_form, device_cell, local_time, readings_text
from agent.config import load
from agent.config.lanes import DEFAULT_LANE
from agent.config.settings import GatewaySettings
from agent.store.files.folders import store_folders
from agent.store.read import documents
from agent.store.read.flush_request import request_counts
from agent.store.read.kept import Selection
from agent.terminal import Colour, printable
from contract.timestamp import rfc3339

EXAMPLES = """examples:
  oncegate events --limit 3
  oncegate events --follow --device 'urn:dev:mac:*'
  oncegate events --since 2h --device door-2
  oncegate events --since 2026-01-31T12:00:00Z --json > events.jsonl
  oncegate events --limit 1000 --json | jq -r 'select(.state == "new").device' | sort | uniq -c
  oncegate events --duplicates

--since is the time of acceptance by the gateway's clock. Without it the latest 500,000 events are searched, with it all
that are kept; events that are in the table are kept for store.keep_processed.
"""
LIMIT = 20
FOLLOW_SECONDS = 0.5
"""How often the store is read."""
_COLOURS = {"new": Colour.WARNING, "forwarded": None, "processed": Colour.GOOD, "lost": Colour.BAD}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--follow", "-f", action="store_true", help="continue with new events, until Ctrl-C")
    parser.add_argument(
        "--device", metavar="PATTERN", default="*", help="only events of these devices, such as 'urn:dev:mac:*'"
    )
    parser.add_argument(
        "--since",
        type=past_timestamp,
        metavar="TIME",
        help="only accepted since then: 10m, 2h, 7d ago, or date and time",
    )
    parser.add_argument(
        "--limit", type=positive, metavar="N", help=f"how many at most (default: {LIMIT}, with --since all)"
    )
    parser.add_argument("--lane", metavar="NAME", default=DEFAULT_LANE, help=f"of this lane (default: {DEFAULT_LANE})")
    parser.add_argument("--duplicates", action="store_true", help="show the latest duplicates, with their events")
    add_form(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print events or duplicates."""
    gateway = load.load(arguments.config).gateway
    folder = store_folders(gateway.state_dir).get(arguments.lane)
    if folder is None:
        known = ", ".join(store_folders(gateway.state_dir))
        raise UsageError(f"lane {arguments.lane} has no store; those with one: {known}")
    if arguments.duplicates:
        return _show_duplicates(arguments, gateway, folder)
    selection = Selection(arguments.device, arguments.since)
    printer = Printer(arguments, ("accepted", "state", "device", "event"), _event_row)
    limit = arguments.limit
    last = documents.read_last_position(folder)
    if arguments.since is not None and limit is None:
        printer.print(documents.read_events_between(folder, gateway.id, 0, last, selection))
    elif printer.print(documents.read_events(folder, gateway.id, limit or LIMIT, selection, last)) < (limit or LIMIT):
        _report_search(folder, last)
    try:
        while arguments.follow:
            time.sleep(FOLLOW_SECONDS)
            before, last = last, documents.read_last_position(folder)
            if last != before:  # below it, where an older store has been put in place
                printer.print(documents.read_events_between(folder, gateway.id, min(before, last), last, selection))
    except KeyboardInterrupt:
        return 0
    return 0


def _report_search(folder: Path, last: int) -> None:
    """Name the part of the store that was searched, where older events are kept, too."""
    start = documents.read_search_start(folder, last)
    if start is not None:
        text = f"searched the latest {documents.EVENTS_SEARCHED_MAX:,} events, accepted since {rfc3339(start)}"
        print(f"oncegate: {text}; --since TIME, without --limit, searches older ones", file=sys.stderr)


def _show_duplicates(arguments: argparse.Namespace, gateway: GatewaySettings, folder: Path) -> int:
    if arguments.follow or arguments.since is not None or arguments.device != "*":
        raise UsageError("--duplicates lists the latest ones only: without --follow, --since and --device")
    printer = Printer(arguments, ("received", "state", "sequence", "fingerprint"), _duplicate_row)
    request_counts(gateway.state_dir)
    printer.print(documents.read_duplicates(folder, arguments.limit or LIMIT))
    return 0


def _event_row(event: Document) -> tuple[Sequence[str], Colour | None]:
    state = event["state"]
    if "received" not in event:
        labels = f"epoch {event['epoch']}, sequence {event['first']} to {event['last']}: see oncegate verify"
        return ("", state, "", labels), Colour.BAD
    return (local_time(event["received"]), state, device_cell(event["device"]), _summary(event)), _COLOURS.get(state)


def _summary(event: Document) -> str:
    identity = [f"{name} {event[name]}" for name in ("boot", "id") if name in event]
    kind = [event["type"]] if event["type"] != "reading" else []
    words = [" ".join([*kind, *identity]), readings_text(event.get("data"), event.get("units"))]
    if "ext" in event:
        words.append(f"[{readings_text(event['ext'], None)}]")
    if "possible_duplicate_of" in event:
        words.append(f"(may repeat {event['possible_duplicate_of']})")
    return printable(": ".join(filter(None, words[:2])) + " ".join(["", *words[2:]]))


def _duplicate_row(duplicate: Document) -> tuple[Sequence[str], Colour | None]:
    fingerprint = duplicate["fingerprint"] or "forgotten"
    label = f"{duplicate['epoch']} {duplicate['sequence']}"
    return (local_time(duplicate["received"]), duplicate["state"], label, fingerprint), None
