"""`oncegate config`: the effective configuration, with the origin of each value."""

import argparse
import json
import os
from dataclasses import asdict

from agent import terminal
from agent.config import origins
from agent.config.origins import DEFAULT
from agent.terminal import Colour

JSON = "one JSON object a line"
EXAMPLES = """examples:
  oncegate config                    the effective values, and the source of each
  oncegate config --changed          only values that are not defaults
  oncegate config --json | jq -r 'select(.key == "max_bytes").value'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--changed", action="store_true", help="omit the defaults")


def run(arguments: argparse.Namespace) -> int:
    """Print the settings, with secrets hidden."""
    _, settings = origins.read(arguments.config, os.environ)
    shown = [setting for setting in settings if not arguments.changed or setting.origin != DEFAULT]
    if arguments.json:
        for setting in shown:
            print(json.dumps(asdict(setting), ensure_ascii=False))
        return 0
    values = ["" if one.value is None else json.dumps(one.value, ensure_ascii=False) for one in shown]
    names = [f"{one.section}.{one.key}".lstrip(".") for one in shown]
    rows = list(zip(names, values, [one.origin for one in shown], strict=True))
    colours = [None if setting.origin == DEFAULT else Colour.STRONG for setting in shown]
    print(terminal.table(rows, ("setting", "value", "origin"), colours))
    return 0
