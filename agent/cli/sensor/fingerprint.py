"""`oncegate fingerprint`: the fingerprints of events in a file, for authors of sensor firmware."""

import argparse

from agent.cli.arguments import STANDARD_INPUT, read_input
from agent.cli.failures import CommandError
from agent.decode import cbor, json
from agent.decode.decoded import DecodeError, InvalidEvent, Undecodable
from agent.decode.event_map import NO_PARAMETERS, to_event
from agent.terminal import json_line
from contract.event import Label
from contract.fingerprint import IDENTITY_FIELDS, fingerprint, needs_label
from contract.values import Invalid

JSON = "one JSON object for each event; null for -"
EXAMPLES = """examples:
  echo '{"device":"urn:dev:mac:00158d0001a2b3c4","id":17,"data":{"temperature":21.5}}' | oncegate fingerprint
  oncegate fingerprint events.cbor
  oncegate fingerprint --fields device,id event.json
"""
LABEL_FIELDS = ("epoch", "sequence")
_CHOICES = ", ".join((*IDENTITY_FIELDS, *LABEL_FIELDS))
_CBOR_FIRST = 0x80
"""The first byte of CBOR's arrays, maps and tags is not below this, that of JSON is."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "--fields",
        type=_read_fields,
        default=IDENTITY_FIELDS,
        metavar="A,B",
        help=f"identity fields, of {_CHOICES} (default: {','.join(IDENTITY_FIELDS)})",
    )
    parser.add_argument(
        "file",
        nargs="?",
        default=STANDARD_INPUT,
        metavar="FILE",
        help="an event, or an array of events, in JSON or CBOR; - is the standard input (default)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print one line for each event: 32 hex digits, or - where its identity needs a label."""
    try:
        fingerprints = _fingerprints(read_input(arguments.file), arguments.fields)
    except (OSError, DecodeError) as error:
        raise CommandError(str(error)) from error
    for found in fingerprints:
        print(json_line({"fingerprint": found}) if arguments.json else found or "-")
    return 0


def _read_fields(text: str) -> tuple[str, ...]:
    fields = tuple(text.split(","))
    for name in fields:
        if name not in IDENTITY_FIELDS and name not in LABEL_FIELDS:
            raise argparse.ArgumentTypeError(f"{name!r} is no identity field; choose from {_CHOICES}")
    if len({*LABEL_FIELDS} & {*fields}) == 1:
        raise argparse.ArgumentTypeError("epoch and sequence are one label: name both or neither")
    return fields


def _fingerprints(body: bytes, fields: tuple[str, ...]) -> list[str | None]:
    document = cbor.read(body) if body[:1] >= bytes([_CBOR_FIRST]) else json.read(body)
    if not isinstance(document, list | dict | Invalid):
        raise Undecodable("the input is neither a map nor an array of maps")
    found: list[str | None] = []
    for number, entries in enumerate(document if isinstance(document, list) else [document], start=1):
        try:
            found.append(_fingerprint(entries, fields))
        except InvalidEvent as error:
            raise InvalidEvent(f"event {number}: {error}" if isinstance(document, list) else str(error)) from None
    return found


def _fingerprint(entries: object, fields: tuple[str, ...]) -> str | None:
    label = None
    if isinstance(entries, dict):
        label = _label(entries)
        entries = {name: value for name, value in entries.items() if name not in LABEL_FIELDS}
        if entries.get("device") is None:
            raise InvalidEvent("the event has no device; over the network it would be the sender's address")
    event = to_event(entries, NO_PARAMETERS, fallback="")
    chosen = tuple(name for name in fields if name not in LABEL_FIELDS)
    if not needs_label(event, chosen):
        label = label if chosen != fields else None
    elif label is None:
        return None
    return fingerprint(event, chosen, label).hex()


def _label(entries: dict[str, object]) -> Label | None:
    """Return the label in the event, as a record has it; None where there is none."""
    epoch, sequence = (entries.get(name) for name in LABEL_FIELDS)
    if epoch is None and sequence is None:
        return None
    if type(epoch) is not str or type(sequence) is not int or sequence < 1:
        raise InvalidEvent("epoch and sequence go together, as text and as a number from 1")
    return Label(epoch, sequence)
