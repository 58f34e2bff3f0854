"""`oncegate completion`; and `python -m agent.cli.manual PAGES BASH ZSH`: manual pages in a folder, and two scripts.

Both are made from the parsers of the commands: the scripts by shtab, the pages of the help as it is printed. The build
of a package for another processor runs this: nothing that is imported is compiled.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import shtab

from agent.cli.commands import COMMANDS, HELP, command_parser, declare, main_parser
from agent.config.load import DEFAULT_PATH, PATH_VARIABLE

SHELLS: Final = ("bash", "zsh")
EXAMPLES = """examples:
  source <(oncegate completion bash)
  oncegate completion bash | sudo tee /etc/bash_completion.d/oncegate > /dev/null
  oncegate completion zsh > ~/.zfunc/_oncegate      a folder of fpath, before compinit

The Debian package contains both scripts, and a manual page for each command: man oncegate-events
"""
_SUMMARY = "gateway agent for exactly-once delivery of sensor events"
_SURROUNDINGS = f"""
environment:
  {PATH_VARIABLE}        the configuration file, where --config names none
  ONCEGATE_SECTION__KEY  the value of a key, which takes precedence over the file
  NO_COLOR               where set, the output has no colours

files:
  {DEFAULT_PATH}      the configuration
  /etc/oncegate/secrets            secrets that systemd passes to the service; the configuration refers to them as
                                   credential:NAME
  /var/lib/oncegate                the event store
  /usr/share/doc/oncegate/docs     the documents

The agent accepts events from sensors, acknowledges each event after it is on disk, and keeps it until the cloud job has
confirmed that it is in its table. Each command has a page of its own, such as oncegate-events(1).
"""
_ESCAPED = str.maketrans({"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti"})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's argument."""
    parser.add_argument("shell", choices=SHELLS, help="the shell")


def run(arguments: argparse.Namespace) -> int:
    """Print the completion script of a shell."""
    print(script(arguments.shell))
    return 0


def script(shell: str) -> str:
    """Return the completion script of a shell, to be sourced or installed."""
    parser = main_parser()
    commands = parser.add_subparsers()
    for name, command in COMMANDS.items():
        declare(command, commands.add_parser(name, help=command.summary))
    shown = commands.add_parser(HELP, add_help=False, help="show the help of a command")
    shown.add_argument("command", choices=tuple(COMMANDS))
    for one in (parser, *commands.choices.values()):
        for action in one._actions:
            if action.type is Path or action.metavar == "FILE":
                action.complete = shtab.FILE  # type: ignore[attr-defined]  # shtab's own way
    return str(shtab.complete(parser, shell))


def pages() -> Mapping[str, str]:
    """Return the manual pages of the program and of each command, by their file names."""
    found = {"oncegate.1": _page("oncegate", _SUMMARY, main_parser(), _SURROUNDINGS)}
    for name, command in COMMANDS.items():
        page = f"oncegate-{name}"
        found[f"{page}.1"] = _page(page, command.summary, command_parser(command), "\nsee also: oncegate(1)\n")
    return found


def _page(name: str, summary: str, parser: argparse.ArgumentParser, rest: str) -> str:
    """Return a page: the help as it is printed, which is not filled, so that examples stay as they are typed."""
    parser.formatter_class = lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=80)
    lines = [f'.TH {roff(name.upper())} 1 "" oncegate', ".SH NAME", rf"{roff(name)} \- {roff(summary)}"]
    return "\n".join([*lines, ".SH DESCRIPTION", ".nf", *map(roff, (parser.format_help() + rest).splitlines()), ""])


def roff(text: str) -> str:
    """Return a line in which nothing is a request or an escape of roff."""
    text = text.translate(_ESCAPED)
    return rf"\&{text}" if text.startswith(".") else text


def main() -> None:
    """Write the files."""
    folder, *scripts = map(Path, sys.argv[1:])
    written = {folder / name: text for name, text in pages().items()}
    for file, text in {**written, **{file: script(shell) for shell, file in zip(SHELLS, scripts, strict=True)}}.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o644)


if __name__ == "__main__":
    main()
