"""All commands by name, and their parsers; the module of a command is imported only when the command is used."""

import argparse
import difflib
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from typing import Any

from cloud.cli import spark

PROGRAM = "oncegate-cloud"
HELP = "help"


class Engine(Enum):
    """Whether a command is run by Spark."""

    ALWAYS = "always"
    FILES = "unless the table is in a database"
    SESSION = "unless the table is in a database, in a session of this process"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Command:
    """A command; its module has `main(arguments)`."""

    name: str
    module: str
    options: str
    """The module with `parser()` and `parse(arguments)`."""
    summary: str
    engine: Engine

    def parser(self) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = import_module(self.options).parser()
        return parser

    def check(self, arguments: Sequence[str]) -> Any:
        """Return the settings in the arguments; exit where these are wrong.

        Their `needs_spark` says whether they name a Delta table, unless Spark runs the command always or never.
        """
        return import_module(self.options).parse(arguments)

    def run(self, arguments: Sequence[str]) -> int:
        status: int = import_module(self.module).main(list(arguments))
        return status

    @property
    def file(self) -> Path:
        """Return the file of the module, which Spark runs."""
        spec = find_spec(self.module)
        assert spec is not None
        return Path(str(spec.origin))


@dataclass(frozen=True, slots=True)
class Invocation:
    """A command with its arguments."""

    command: Command
    arguments: tuple[str, ...]
    spark: spark.SparkOptions | None
    """None where the command runs without Spark."""


def _command(name: str, summary: str, engine: Engine) -> Command:
    return Command(name, f"cloud.{name}", f"cloud.{name}", summary, engine)


COMMANDS = {
    command.name: command
    for command in (
        Command("job", "cloud.job", "cloud.settings", "write each event into the table once", Engine.ALWAYS),
        Command("audit", "cloud.audit", "cloud.auditing.settings", "account for every event", Engine.ALWAYS),
        _command("maintenance", "compact the table and remove unused files", Engine.FILES),
        _command("query", "query the table in SQL", Engine.SESSION),
        Command(
            *("trace", "cloud.tracing.command", "cloud.tracing.settings"),
            "tell what has happened to an event",
            Engine.SESSION,
        ),
        _command("consumer", "write each event into PostgreSQL once, without Spark", Engine.NEVER),
        _command("relay", "give receipts for consumers that give none", Engine.NEVER),
    )
}
_EXAMPLES = f"""\
examples:
  {PROGRAM} job --bootstrap-servers localhost:9092 --table ./events --checkpoint ./checkpoint
  {PROGRAM} query --table ./events 'SELECT device, count(*) AS events FROM events GROUP BY device'
  {PROGRAM} COMMAND --help              options and examples of a command

exit status: 0 success, 1 a failure, 2 wrong usage
"""


def parse(words: Sequence[str]) -> Invocation:
    """Return the command and its checked arguments; exit where they are wrong, or after the help."""
    main = main_parser()
    given, unknown = main.parse_known_args(words)
    if unknown:
        main.error(f"unknown option {unknown[0]}; the options of a command follow its name")
    if given.command is None:
        main.print_help(sys.stderr)
        sys.exit(2)
    if given.command == HELP:
        (command_parser(_find(main, given.rest[0])) if given.rest else main).print_help()
        sys.exit(0)
    return _invocation(_find(main, given.command), given.rest)


def main_parser() -> argparse.ArgumentParser:
    """Return the parser of what precedes the name of a command; it passes on what follows it."""
    lines = ["commands:", *(f"  {command.name:12} {command.summary}" for command in COMMANDS.values()), ""]
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        usage=f"{PROGRAM} COMMAND [OPTIONS]",
        description="Write each event of the topic into a table once, and check, maintain and query the table.",
        epilog="\n".join([*lines, _EXAMPLES]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {version('oncegate')}")
    parser.add_argument("command", nargs="?", help=argparse.SUPPRESS)
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def command_parser(command: Command) -> argparse.ArgumentParser:
    """Return the parser of one command, with Spark's options where it may need Spark."""
    parser = command.parser()
    if command.engine is not Engine.NEVER:
        spark.add_options(parser.add_argument_group("options of Spark"))
    return parser


def _invocation(command: Command, words: Sequence[str]) -> Invocation:
    parser = command_parser(command)
    _check_names(parser, words)
    if {"-h", "--help"} & set(words):
        parser.print_help()
        sys.exit(0)
    if command.engine is Engine.NEVER:
        command.check(words)
        return Invocation(command, tuple(words), None)
    options, own = spark.split(words)
    if options.in_cluster and command.engine is Engine.SESSION:
        parser.error("argument --deploy-mode: the rows are printed here, so the driver runs here, too")
    if options.in_cluster and options.master.startswith(("local", "spark:")):
        parser.error(f"argument --deploy-mode: with --master {options.master}, Spark runs a Python driver only here")
    if options.in_cluster:  # the files that the arguments name are on the driver's machine
        return Invocation(command, tuple(own), options)
    settings = command.check(own)
    needs_spark = command.engine is Engine.ALWAYS or settings.needs_spark
    return Invocation(command, tuple(own), options if needs_spark else None)


def _find(parser: argparse.ArgumentParser, name: str) -> Command:
    if name not in COMMANDS:
        near = _nearest(name, COMMANDS)
        parser.error(f"unknown command {name!r}; " + (f"did you mean {near}?" if near else f"see {PROGRAM} --help"))
    return COMMANDS[name]


def _check_names(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Refuse an unknown option, before argparse complains of the required one that was meant."""
    known = [name for action in parser._actions for name in action.option_strings if name.startswith("--")]
    for word in takewhile(lambda word: word != "--", words):
        option = word.partition("=")[0]
        if option.startswith("--") and option not in known:
            near = _nearest(option, known)
            parser.error(f"unknown argument {option}" + (f"; did you mean {near}?" if near else ""))


def _nearest(word: str, known: Iterable[str]) -> str | None:
    return next(iter(difflib.get_close_matches(word, list(known), n=1)), None)
