"""`oncegate version`: the version of the program, and its form."""

import argparse

from agent import release
from agent.terminal import json_line

JSON = "one JSON object"
EXAMPLES = """examples:
  oncegate version
  oncegate version --json | jq -r .version
"""


def run(arguments: argparse.Namespace) -> int:
    """Print both in one line."""
    if arguments.json:
        print(json_line({"version": release.version(), "form": release.form()}))
    else:
        print(f"oncegate {release.version()} {release.form()}")
    return 0
