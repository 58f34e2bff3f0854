"""`oncegate trace`: the trace of an event, by its fingerprint."""

import argparse
import re
import sys

from agent.cli.failures import FAILURE
from agent.config import load
from agent.store.read.documents import read_trace
from agent.store.read.flush_request import request_counts
from agent.terminal import json_line, printable

JSON = "one JSON object a line"
EXAMPLES = """examples:
  oncegate trace 1876d2e5f34f91105e52555b000b5edc
  echo '{"device":"urn:dev:mac:00158d0001a2b3c4","id":17,"data":{"temperature":21.5}}' | oncegate fingerprint |
    xargs oncegate trace
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("fingerprint", type=_fingerprint, metavar="FINGERPRINT", help="32 hex digits")


def run(arguments: argparse.Namespace) -> int:
    """Print the store's data about an event; return 1 where it has none."""
    gateway = load.load(arguments.config).gateway
    request_counts(gateway.state_dir)
    found = read_trace(gateway.state_dir, gateway.id, arguments.fingerprint)
    if not found:
        print("not found: never accepted, or older than identity.retention", file=sys.stderr)
        return FAILURE
    for document in found:
        if arguments.json:
            print(json_line(document))
        else:
            for name, value in document.items():
                text = printable(value) if isinstance(value, str) else json_line(value)
                print(f"{name:>13}  {text}")
    return 0


def _fingerprint(text: str) -> bytes:
    if not re.fullmatch("[0-9A-Fa-f]{32}", text):
        raise argparse.ArgumentTypeError("a fingerprint has 32 hex digits")
    return bytes.fromhex(text)
