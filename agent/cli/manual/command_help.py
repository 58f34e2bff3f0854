"""What the help of each command contains, read from its parser."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.cli.commands import COMMANDS, GROUPS, HELP, command_parser, main_parser


@dataclass(frozen=True, slots=True)
class Argument:
    """An option, or a positional argument."""

    flags: tuple[str, ...]
    """Empty for a positional argument."""
    metavar: str
    """Names the value; empty where the option takes none."""
    choices: tuple[str, ...]
    files: bool
    """Whether the value is the name of a file."""
    repeated: bool
    help: str


@dataclass(frozen=True, slots=True)
class CommandHelp:
    """The help of a command, or of the program itself."""

    name: str
    """Empty for the program."""
    summary: str
    usage: str
    options: tuple[Argument, ...]
    positionals: tuple[Argument, ...]
    examples: str


def program() -> CommandHelp:
    """Return the help of the program, without its commands."""
    return _help_of("", "gateway agent for exactly-once delivery of sensor events", main_parser(), "")


def commands() -> Mapping[str, tuple[CommandHelp, ...]]:
    """Return the help of all commands by group."""
    return {
        group: tuple(
            _help_of(command.name, command.summary, parser, parser.epilog or "")
            for command in members
            for parser in (command_parser(command),)
        )
        for group, members in GROUPS.items()
    }


def command_names() -> list[str]:
    """Return the names of all commands, `help` included."""
    return [*COMMANDS, HELP]


def _help_of(name: str, summary: str, parser: argparse.ArgumentParser, examples: str) -> CommandHelp:
    found = [_argument(action, parser) for action in parser._actions if action.help != argparse.SUPPRESS]
    usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
    options, positionals = (tuple(one for one in found if bool(one.flags) is named) for named in (True, False))
    return CommandHelp(name, summary, usage, options, positionals, examples)


def _argument(action: argparse.Action, parser: argparse.ArgumentParser) -> Argument:
    takes_value = action.nargs != 0
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    choices = tuple(map(str, action.choices or ()))
    kind: Callable[[str], object] | object = action.type
    return Argument(
        flags=tuple(action.option_strings),
        metavar=(metavar or "{" + ",".join(choices) + "}") if takes_value else "",
        choices=choices,
        files=kind is Path or metavar == "FILE",
        repeated=isinstance(action, argparse._AppendAction),
        help=parser._get_formatter()._expand_help(action) if action.help else "",
    )
