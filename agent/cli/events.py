"""`oncegate events`: the latest stored events as JSON objects."""

from __future__ import annotations

import argparse

from agent.cli.arguments import positive
from agent.config import load
from agent.store.read.documents import read_duplicates, read_events
from agent.terminal import json_line

EXAMPLES = """examples:
  oncegate events --limit 3
  oncegate events --limit 1000 | jq -r 'select(.state == "new").device' | sort | uniq -c
  oncegate events --duplicates
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--json", action="store_true", help="accepted for uniformity: the output is JSON anyway")
    parser.add_argument("--limit", type=positive, default=20, metavar="N", help="how many at most (default: 20)")
    parser.add_argument("--duplicates", action="store_true", help="show the latest duplicates, with their events")


def run(arguments: argparse.Namespace) -> int:
    """Print events or copies, one JSON object a line."""
    gateway = load.load(arguments.config).gateway
    if arguments.duplicates:
        rows = read_duplicates(gateway.state_dir, arguments.limit)
    else:
        rows = read_events(gateway.state_dir, gateway.id, arguments.limit)
    for row in rows:
        print(json_line(row))
    return 0
