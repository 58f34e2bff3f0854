"""Manual pages: one of the program, and one of each command."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agent.cli.manual.command_help import Argument, CommandHelp, commands, program
from agent.config.load import DEFAULT_PATH, PATH_VARIABLE

SECTION = 1
_FILES = (
    (str(DEFAULT_PATH), "the configuration"),
    (
        "/etc/oncegate/secrets",
        "secrets that systemd passes to the service; the configuration refers to them as credential:NAME",
    ),
    ("/var/lib/oncegate", "the event store"),
    ("/usr/share/doc/oncegate/docs", "the documents"),
)
_ENVIRONMENT = (
    (PATH_VARIABLE, "the configuration file, where --config names none"),
    ("ONCEGATE_SECTION__KEY", "the value of a key, which takes precedence over the file"),
    ("NO_COLOR", "where set, the output has no colours"),
)
_DESCRIPTION = (
    "The agent accepts events from sensors, acknowledges each event after it is on disk, and keeps it until the cloud "
    "job has confirmed that it is in its table."
)
_ESCAPED = {"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti"}
_EXIT = "0 success, 1 failure, 2 wrong usage or configuration."


def pages() -> Mapping[str, str]:
    """Return the pages by their file names."""
    found = {f"oncegate.{SECTION}": _program_page()}
    for group in commands().values():
        found |= {f"oncegate-{command.name}.{SECTION}": _command_page(command) for command in group}
    return found


def _program_page() -> str:
    program_help = program()
    lines = [*_head("oncegate", program_help.summary), *_synopsis(program_help.usage), ".SH DESCRIPTION"]
    lines.append(_text(_DESCRIPTION))
    lines += [".SH OPTIONS", *_options(program_help.options)]
    for group, members in commands().items():
        lines.append(f".SH {_text(f'COMMANDS FOR {group.upper()}')}")
        for one in members:
            lines += [".TP", rf"\fBoncegate\-{_text(one.name)}\fR(1)", _text(one.summary)]
    lines += [".SH ENVIRONMENT", *_definitions(_ENVIRONMENT), ".SH FILES", *_definitions(_FILES)]
    return "\n".join([*lines, ".SH EXIT STATUS", _EXIT]) + "\n"


def _command_page(command: CommandHelp) -> str:
    lines = [*_head(f"oncegate-{command.name}", command.summary), *_synopsis(command.usage), ".SH DESCRIPTION"]
    lines.append(_text(command.summary[0].upper() + command.summary[1:] + "."))
    if command.positionals:
        lines += [".SH ARGUMENTS", *_options(command.positionals)]
    lines += [".SH OPTIONS", *_options(command.options)]
    lines += [".SH EXAMPLES", ".nf", *(_text(line) for line in _examples(command.examples)), ".fi"]
    lines += [".SH FILES", *_definitions(_FILES[:1]), ".SH EXIT STATUS", _EXIT]
    return "\n".join([*lines, ".SH SEE ALSO", r"\fBoncegate\fR(1)"]) + "\n"


def _head(name: str, summary: str) -> list[str]:
    title = f'.TH {_text(name.upper())} {SECTION} "" "oncegate" "User Commands"'
    return [title, ".SH NAME", rf"{_text(name)} \- {_text(summary)}"]


def _synopsis(usage: str) -> list[str]:
    command, _, rest = usage.partition(" [")
    return [".SH SYNOPSIS", rf"\fB{_text(command)}\fR {_text('[' + rest)}" if rest else rf"\fB{_text(command)}\fR"]


def _options(arguments: tuple[Argument, ...]) -> Iterator[str]:
    for argument in arguments:
        yield ".TP"
        value = rf" \fI{_text(argument.metavar)}\fR" if argument.metavar and argument.flags else ""
        flags = ", ".join(rf"\fB{_text(flag)}\fR{value}" for flag in argument.flags)
        yield flags or rf"\fI{_text(argument.metavar)}\fR"
        yield _text(argument.help)


def _definitions(entries: tuple[tuple[str, str], ...]) -> Iterator[str]:
    for name, meaning in entries:
        yield from (".TP", rf"\fI{_text(name)}\fR", _text(meaning))


def _examples(text: str) -> Iterator[str]:
    for line in text.rstrip().splitlines():
        if line not in ("example:", "examples:"):
            yield line


def _text(text: str) -> str:
    """Return a text in which nothing is a request or an escape of roff."""
    text = "".join(_ESCAPED.get(sign, sign) for sign in text)
    return rf"\&{text}" if text.startswith(".") else text
