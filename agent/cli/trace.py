"""`oncegate trace`: one event's way, by its fingerprint."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from agent.config import load
from agent.store.facts import RECEIPTS_TABLE
from agent.store.layout import FILE_NAME
from agent.store.read.states import PROCESSED
from agent.store.read.trace import Trace, trace
from agent.store.schema import tables
from agent.terminal import json_line, printable
from contract.moment import rfc3339
from contract.record import encode_value

UNKNOWN = 1


EXAMPLES = """examples:
  oncegate trace 1876d2e5f34f91105e52555b000b5edc
  echo '{"device":"urn:dev:mac:00158d0001a2b3c4","id":17,"data":{"temperature":21.5}}' | oncegate fingerprint |
    xargs oncegate trace
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("fingerprint", type=_fingerprint, metavar="FINGERPRINT", help="32 hex digits")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def run(arguments: argparse.Namespace) -> int:
    """Print what the store knows of an event; 1 where it knows nothing."""
    gateway = load.load(arguments.config).gateway
    found = read_trace(gateway.state_dir, gateway.id, arguments.fingerprint)
    if not found:
        print("not known here: never accepted, or forgotten after identity.retention", file=sys.stderr)
        return UNKNOWN
    for document in found:
        if arguments.json:
            print(json_line(document))
        else:
            for name, value in document.items():
                text = printable(value) if isinstance(value, str) else json_line(value)
                print(f"{name:>13}  {text}")
    return 0


def read_trace(folder: Path, gateway: str, fingerprint: bytes) -> list[dict[str, object]]:
    """Give what the store knows of the events under a fingerprint, in JSON's types."""
    from agent.store.read.connection import read_only

    with read_only(folder / FILE_NAME) as store:
        table = tables.read_fact(store, RECEIPTS_TABLE)
        return [_document(one, gateway, table) for one in trace(store, fingerprint)]


def _document(one: Trace, gateway: str, table: str | None) -> dict[str, object]:
    document: dict[str, object] = {"epoch": one.label.epoch, "sequence": one.label.sequence, "state": one.state}
    if one.committed is not None:
        document["committed"] = rfc3339(one.committed)
    if one.event is not None:
        value = json.loads(encode_value(one.event.fingerprint, gateway, one.event.label, one.event.tail))
        document |= {"accepted": rfc3339(value["received"]), "clock": one.event.clock.value, "event": value}
    if one.batch is not None:
        document["topic_id"] = one.batch.topic_id
        # The batch's, not the event's own: where within them it lies, the gateway does not keep.
        document["batch_offsets"] = {
            str(number): [offsets.lowest, offsets.highest] for number, offsets in one.batch.partitions.items()
        }
    if one.state == PROCESSED and table is not None:
        document["receipt"] = table
    document["copies"] = [rfc3339(received) for received in one.copies]
    return document


def _fingerprint(text: str) -> bytes:
    try:
        fingerprint = bytes.fromhex(text)
    except ValueError:
        fingerprint = b""
    if len(fingerprint) != 16:
        raise argparse.ArgumentTypeError("a fingerprint has 32 hex digits")
    return fingerprint
