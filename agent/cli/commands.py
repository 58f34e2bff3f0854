"""All commands by name, and their parsers; the module of a command is imported only when the command is used."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from agent.cli.failures import USAGE
from agent.config.load import DEFAULT_PATH, PATH_VARIABLE
from agent.config.mistakes import suggestion

HELP = "help"


class Command(NamedTuple):
    """One command; its module has EXAMPLES, `run(arguments)`, and where needed `add_arguments` and JSON."""

    name: str
    module: str
    """Below `agent.cli`."""
    summary: str
    configured: bool = True
    """Whether it reads the configuration."""


GROUPS: dict[str, tuple[Command, ...]] = {
    "the gateway": (
        Command("run", "run", "run the agent until SIGTERM"),
        Command("check", "check", "check the configuration: file, line, key"),
        Command("config", "config", "print the effective configuration, with the origin of each value"),
        Command("doctor", "doctor.command", "check clock, disk, Kafka, MQTT; exit 1: something is wrong"),
        Command("status", "status", "show the contents of the store, and the agent's links and rates"),
        Command("support-bundle", "bundle.command", "write versions, status, findings and log into one file"),
    ),
    "its events": (
        Command("events", "store.events", "show the latest events, or follow them: a table, or JSON lines"),
        Command("rejected", "store.rejected", "show rejected events, with the reason and the bytes of each"),
        Command("trace", "store.trace", "show the trace of an event, by its fingerprint"),
        Command("replay", "store.replay", "send the kept events of an epoch again"),
        Command("verify", "store.verify", "check all of the store; exit 1: it is damaged"),
    ),
    "sensors": (
        Command("send", "sensor.send", "send an event as a sensor does, until it is answered"),
        Command("decode", "sensor.decode", "show the events in a body as the gateway sees them"),
        Command("mappings", "sensor.mappings", "list the mappings of payloads, or print one", configured=False),
        Command(
            "fingerprint",
            "sensor.fingerprint",
            "compute the fingerprints of events, for firmware writers",
            configured=False,
        ),
        Command(
            "credentials",
            "sensor.credentials",
            "create the OSCORE credentials of a sensor, or the key of the gateway's records, for both sides",
        ),
    ),
    "this program": (
        Command("completion", "manual", "print the completion script of a shell", configured=False),
        Command("version", "version", "print version and form", configured=False),
    ),
}
COMMANDS = {command.name: command for group in GROUPS.values() for command in group}

_DESCRIPTION = "Accept events from sensors, each exactly once, and keep them until they are in the table of the cloud."
_EXAMPLES = """\
examples:
  oncegate check                       is the configuration right?
  oncegate doctor                      is everything around the gateway right?
  oncegate status                      what is stored, and what is happening now?
  oncegate send t=21.5 --device d --id 1 --repeat 2
  oncegate events --follow             the events as they arrive
  oncegate trace 1876d2e5f34f91105e52555b000b5edc
  oncegate COMMAND --help              options and examples of a command

exit codes: 0 fine, 1 a failure, 2 wrong usage or configuration
"""


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Return the arguments of a command line, with the command's function as `run`; exit where they are wrong."""
    parser = main_parser()
    parser.add_argument("command", nargs="?", help=argparse.SUPPRESS)
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    given, unknown = parser.parse_known_args(words)
    if unknown:
        parser.error(f"unknown option {unknown[0]}; the options of a command follow its name")
    if given.version:
        return _parse_options(command_parser(COMMANDS["version"]), [])
    if given.command == HELP:
        shown = command_parser(_find(parser, given.rest[0])) if given.rest else parser
        shown.print_help()
        sys.exit(0)
    if given.command is None:
        parser.print_help(sys.stderr)
        sys.exit(USAGE)
    command = _find(parser, given.command)
    return _parse_options(command_parser(command, given.config), given.rest)


def main_parser() -> argparse.ArgumentParser:
    """Return the parser of what precedes a command's name."""
    lines = []
    for group, commands in GROUPS.items():
        lines += [f"commands for {group}:", *(f"  {command.name:15} {command.summary}" for command in commands), ""]
    parser = argparse.ArgumentParser(
        prog="oncegate",
        usage="oncegate [--config FILE] COMMAND [OPTIONS]",
        description=_DESCRIPTION,
        epilog="\n".join([*lines, _EXAMPLES]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help="print version and form, and exit")
    _add_config(parser, None)
    return parser


def command_parser(command: Command, config: Path | None = None) -> argparse.ArgumentParser:
    """Return the parser of one command; `config` is the file that the words before its name have given."""
    module = import_module(f"agent.cli.{command.module}")
    summary = command.summary
    parser = argparse.ArgumentParser(
        prog=f"oncegate {command.name}",
        description=summary[0].upper() + summary[1:] + ".",
        epilog=module.EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    declare(command, parser, config)
    parser.set_defaults(run=module.run)
    return parser


def declare(command: Command, parser: argparse.ArgumentParser, config: Path | None = None) -> None:
    """Declare the arguments of a command."""
    if command.configured:
        _add_config(parser, config or Path(os.environ.get(PATH_VARIABLE, DEFAULT_PATH)))
    module = import_module(f"agent.cli.{command.module}")
    if hasattr(module, "add_arguments"):
        module.add_arguments(parser)
    if hasattr(module, "JSON"):
        parser.add_argument("--json", action="store_true", help=module.JSON)


def _add_config(parser: argparse.ArgumentParser, default: Path | None) -> None:
    help_ = f"configuration file (default: ${PATH_VARIABLE}, else {DEFAULT_PATH})"
    parser.add_argument("--config", type=Path, default=default, metavar="FILE", help=help_)


def _find(parser: argparse.ArgumentParser, name: str) -> Command:
    if name not in COMMANDS:
        parser.error(f"unknown command {name!r}{suggestion(name, COMMANDS, '; see oncegate --help')}")
    return COMMANDS[name]


def _parse_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    arguments, unknown = parser.parse_known_intermixed_args(words)
    if unknown:
        option = unknown[0].partition("=")[0]
        known = [name for action in parser._actions for name in action.option_strings if name.startswith("--")]
        hint = suggestion(option, known, "") if option.startswith("-") else ""
        parser.error(f"unknown argument {option}{hint}")
    return arguments
