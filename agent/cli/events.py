"""`oncegate events`: the stored events, one JSON object for each."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from agent.config import load
from agent.store.fingerprints import rows as known_rows
from agent.store.layout import FILE_NAME
from agent.store.read.events import Epochs
from agent.store.read.kept import Kept, read_all
from agent.store.read.states import States
from agent.store.read.trace import fingerprint_at
from agent.store.schema import tables
from agent.terminal import json_line
from contract.record import encode_value

EXAMPLES = """examples:
  oncegate events --limit 3
  oncegate events --limit 1000 | jq -r 'select(.state == "new").device' | sort | uniq -c
  oncegate events --duplicates
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--json", action="store_true", help="the same; for scripts that say so")
    parser.add_argument("--limit", type=_limit, default=20, metavar="N", help="how many at most (default: 20)")
    parser.add_argument("--duplicates", action="store_true", help="show the latest copies, and what each repeats")


def run(arguments: argparse.Namespace) -> int:
    """Print events or copies, an object a line."""
    gateway = load.load(arguments.config).gateway
    if arguments.duplicates:
        rows = read_duplicates(gateway.state_dir, arguments.limit)
    else:
        rows = read_events(gateway.state_dir, gateway.id, arguments.limit)
    for row in rows:
        print(json_line(row))
    return 0


def read_events(folder: Path, gateway: str, limit: int) -> Iterator[dict[str, object]]:
    """Yield the latest stored events in order: the record's keys and `state`; what is not taken holds nothing."""
    from agent.store.read.connection import read_only

    with read_only(folder / FILE_NAME) as store:
        end = tables.last_position(store)
        first = max(tables.first_event(store) or 1, end - limit + 1)
        for entry in read_all(store, range(first, end + 1)):
            if isinstance(entry, Kept):
                yield _document(entry, gateway)
            else:
                yield from ({"state": "damaged", **asdict(labels)} for labels in entry.labels)


def read_duplicates(folder: Path, limit: int) -> Iterator[dict[str, object]]:
    """Yield the latest copies that were recognised, each with the event that it repeats."""
    from agent.store.read.connection import read_only

    with read_only(folder / FILE_NAME) as store:
        copies = known_rows.latest_duplicates(store, limit)
        epochs, states = Epochs.load(store), States(store)
        for copy in copies:
            label = epochs.label(copy.position)
            fingerprint = fingerprint_at(store, copy.position)
            yield {
                "received": copy.received,
                "fingerprint": None if fingerprint is None else fingerprint.hex(),
                "epoch": label.epoch,
                "sequence": label.sequence,
                "state": states.state(copy.position),
            }


def _document(kept: Kept, gateway: str) -> dict[str, object]:
    event = kept.event
    document: dict[str, object] = json.loads(encode_value(event.fingerprint, gateway, event.label, event.tail))
    document["state"] = kept.state
    return document


def _limit(text: str) -> int:
    limit = int(text)
    if limit < 1:
        raise argparse.ArgumentTypeError("expected 1 or more")
    return limit
