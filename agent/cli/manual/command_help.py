"""The words of all commands, read out of their parsers."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.cli.commands import COMMANDS, GROUPS, HELP, command_parser, main_parser


@dataclass(frozen=True, slots=True)
class Option:
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
class Words:
    """A command's words."""

    name: str
    """Empty for the program itself."""
    summary: str
    usage: str
    options: tuple[Option, ...]
    positionals: tuple[Option, ...]
    examples: str


def program() -> Words:
    """Return the words before a command's name."""
    return _words("", "gateway agent for exactly-once delivery of sensor events", main_parser(), "")


def commands() -> Mapping[str, tuple[Words, ...]]:
    """Return the commands' words by group."""
    return {
        group: tuple(
            _words(command.name, command.summary, parser, parser.epilog or "")
            for command in members
            for parser in (command_parser(command),)
        )
        for group, members in GROUPS.items()
    }


def command_names() -> list[str]:
    """Return the names of all commands, `help` included."""
    return [*COMMANDS, HELP]


def _words(name: str, summary: str, parser: argparse.ArgumentParser, examples: str) -> Words:
    found = [_option(action, parser) for action in parser._actions if action.help != argparse.SUPPRESS]
    usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
    options, positionals = (tuple(one for one in found if bool(one.flags) is named) for named in (True, False))
    return Words(name, summary, usage, options, positionals, examples)


def _option(action: argparse.Action, parser: argparse.ArgumentParser) -> Option:
    takes_value = action.nargs != 0
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    choices = tuple(map(str, action.choices or ()))
    kind: Callable[[str], object] | object = action.type
    return Option(
        flags=tuple(action.option_strings),
        metavar=(metavar or "{" + ",".join(choices) + "}") if takes_value else "",
        choices=choices,
        files=kind is Path or metavar == "FILE",
        repeated=isinstance(action, argparse._AppendAction),
        help=parser._get_formatter()._expand_help(action) if action.help else "",
    )
