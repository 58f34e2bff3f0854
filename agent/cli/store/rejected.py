"""`oncegate rejected`: the events that were rejected beside valid ones, with the reason of each."""

import argparse
from collections.abc import Sequence

from agent.cli.arguments import positive
from agent.cli.failures import CommandError
from agent.cli.store.lines import Document, Printer, add_form, device_cell, local_time
from agent.config import load
from agent.config.ways import protocols
from agent.store.read.documents import RejectSelection, read_rejected
from agent.terminal import Colour, printable

EXAMPLES = """examples:
  oncegate rejected
  oncegate rejected --via mqtt --reason 'not a map'
  (umask 077 && oncegate rejected --limit 1000 > rejected.jsonl)
  oncegate rejected --number 17 | jq -r .raw | oncegate decode --hex

The store keeps the last 1,000 rejected events, and the first 4,096 bytes of each; `raw` has them as hex digits. No
bytes are kept of an event that was rejected because of its device. A request without a single valid event is refused
as a whole, and is not listed here: its sender has the reason. MQTT has no such answer, so its messages are listed.
"""
LIMIT = 20
_SHOWN_BYTES = 24


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--via", choices=protocols(), default="", help="only those that arrived over this protocol")
    parser.add_argument("--reason", metavar="TEXT", default="", help="only those whose reason contains this text")
    parser.add_argument(
        "--device", metavar="PATTERN", default="*", help="only events of these devices, such as 'urn:dev:mac:*'"
    )
    parser.add_argument("--number", type=positive, metavar="N", help="only this one")
    parser.add_argument(
        "--limit", type=positive, default=LIMIT, metavar="N", help=f"how many at most (default: {LIMIT})"
    )
    add_form(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the rejected events, the oldest first."""
    folder = load.load(arguments.config).gateway.state_dir
    selection = RejectSelection(arguments.via, arguments.device, arguments.reason, arguments.number)
    found = list(reversed(read_rejected(folder, selection, arguments.limit)))
    if arguments.number is not None and not found:
        raise CommandError("there is no such rejected event, or it is no longer kept")
    Printer(arguments, ("number", "received", "via", "device", "reason and beginning"), _row).print(found)
    return 0


def _row(rejected: Document) -> tuple[Sequence[str], Colour | None]:
    raw = bytes.fromhex(rejected["raw"])
    text = raw[:_SHOWN_BYTES].decode("ascii", "replace")
    shown = text if text.isprintable() and "\ufffd" not in text else raw[:_SHOWN_BYTES].hex(" ")
    beginning = shown + (" …" if len(raw) > _SHOWN_BYTES else "")
    reason = printable(f"{rejected['reason']}: {beginning}" if raw else rejected["reason"])
    device = device_cell(rejected["device"])
    return (str(rejected["number"]), local_time(rejected["received"]), rejected["via"], device, reason), Colour.BAD
