"""`oncegate mappings`: the built-in mappings of other programs' payloads, or one of them to copy."""

import argparse

from agent.cli.failures import CommandError
from agent.config.mistakes import suggestion
from agent.mappings import catalog
from agent.terminal import json_line

JSON = "one JSON object a line"
EXAMPLES = """examples:
  oncegate mappings
  oncegate mappings tasmota                copy it into the configuration under another name, and change it
  oncegate decode --mapping tasmota --topic tele/kitchen/SENSOR message.json

exit codes: 0 fine; 1 there is no such mapping; 2 wrong usage
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's argument."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="print this mapping")


def run(arguments: argparse.Namespace) -> int:
    """Print the names with their topics, or one mapping."""
    known = catalog.builtin()
    if arguments.name is None:
        for name in known:
            topics = catalog.topics(name)
            print(json_line({"name": name, "topics": topics}) if arguments.json else f"{name:22} {topics}")
        return 0
    if arguments.name not in known:
        raise CommandError(f"unknown mapping {arguments.name!r}{suggestion(arguments.name, known, '')}")
    text = catalog.written(arguments.name)
    print(json_line(dict(known[arguments.name].table)) if arguments.json else text.rstrip())
    return 0
