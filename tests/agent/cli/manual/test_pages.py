"""The manual pages: one of each command, without an error of roff, and with every option."""

import re
import subprocess

import pytest

from agent.cli.commands import COMMANDS, command_parser
from agent.cli.manual.pages import _text, pages
from simulators.services.install import programs

PAGES = pages()


def rendered(text: str) -> str:
    """Return a page as `man` shows it on a wide terminal; fail where roff warns of anything."""
    command = [programs.require("groff"), "-man", "-Tascii", "-ww", "-rLL=200n", "-P-cbou"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout


def test_there_is_a_page_of_the_program_and_one_of_each_command() -> None:
    assert set(PAGES) == {"oncegate.1", *(f"oncegate-{name}.1" for name in COMMANDS)}
    shown = rendered(PAGES["oncegate.1"])
    for name, command in COMMANDS.items():
        assert re.search(rf"oncegate-{name}\(1\)\s+{re.escape(command.summary)}", shown)


@pytest.mark.parametrize("name", list(COMMANDS))
def test_a_page_has_every_option_and_the_examples_as_they_are_typed(name: str) -> None:
    shown = rendered(PAGES[f"oncegate-{name}.1"])
    parser = command_parser(COMMANDS[name])
    for flag in parser._option_string_actions:
        assert re.search(rf"^ +(-\S+.*, )?{re.escape(flag)}\b", shown, re.MULTILINE), flag
    for line in (parser.epilog or "").splitlines()[1:]:
        assert line in shown


@pytest.mark.parametrize("text", [".so /etc/passwd", "'ft B", r"a\fB and \(ha", "~ ^ ` - '"])
def test_what_roff_would_take_for_a_request_is_text(text: str) -> None:
    assert rendered(_text(text)).split("\n")[0].strip() == text
