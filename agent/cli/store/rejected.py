"""`oncegate rejected`: the events that were rejected beside valid ones, with the reason of each."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from agent.cli.arguments import positive
from agent.cli.failures import CommandError, UsageError
from agent.cli.store.lines import Document, Printer, add_form, device_cell, local_time
from agent.config import load
from agent.config.ways import protocols
from agent.store.read.documents import RejectSelection, read_rejected
from agent.store.schema.tables import REJECTED_MAX
from agent.terminal import Colour, json_line, printable

EXAMPLES = """examples:
  oncegate rejected
  oncegate rejected --via mqtt --reason 'not a map'
  oncegate rejected --download rejected.jsonl
  oncegate rejected --number 17 --raw | oncegate decode

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
        "--limit", type=positive, metavar="N", help=f"how many at most (default: {LIMIT}, with --download all)"
    )
    parser.add_argument("--raw", action="store_true", help="with --number: write its bytes as they are")
    parser.add_argument("--download", type=Path, metavar="FILE", help="write JSON lines to a new file, mode 600")
    add_form(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the rejected events, the oldest first."""
    if arguments.raw and arguments.number is None:
        raise UsageError("--raw is for one event: name it by --number")
    folder = load.load(arguments.config).gateway.state_dir
    selection = RejectSelection(arguments.via, arguments.device, arguments.reason, arguments.number)
    limit = arguments.limit or (REJECTED_MAX if arguments.download else LIMIT)
    found = list(reversed(read_rejected(folder, selection, limit)))
    if arguments.number is not None and not found:
        raise CommandError("there is no such rejected event, or it is no longer kept")
    if arguments.raw:
        return _write_raw(found[0])
    if arguments.download:
        return _download(found, arguments.download)
    Printer(arguments, ("number", "received", "via", "device", "reason and beginning"), _row).print(found)
    return 0


def _write_raw(rejected: Document) -> int:
    if sys.stdout.isatty():
        raise UsageError("these bytes could control this terminal: write them to a file or a pipe")
    sys.stdout.buffer.write(bytes.fromhex(rejected["raw"]))
    sys.stdout.flush()
    return 0


def _download(found: Sequence[Document], file: Path) -> int:
    try:
        file.touch(0o600, exist_ok=False)
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}") from error
    with file.open("w", encoding="utf-8") as opened:
        opened.writelines(f"{json_line(document)}\n" for document in found)
    print(f"{len(found):,} written to {file}", file=sys.stderr)
    return 0


def _row(rejected: Document) -> tuple[Sequence[str], Colour | None]:
    raw = bytes.fromhex(rejected["raw"])
    text = raw[:_SHOWN_BYTES].decode("ascii", "replace")
    shown = text if text.isprintable() and "\ufffd" not in text else raw[:_SHOWN_BYTES].hex(" ")
    beginning = shown + (" …" if len(raw) > _SHOWN_BYTES else "")
    reason = printable(f"{rejected['reason']}: {beginning}" if raw else rejected["reason"])
    device = device_cell(rejected["device"])
    return (str(rejected["number"]), local_time(rejected["received"]), rejected["via"], device, reason), Colour.BAD
