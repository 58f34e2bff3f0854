"""Completion in real shells, and the manual pages as roff shows them."""

import subprocess
from pathlib import Path

import pytest

from agent.cli.commands import COMMANDS, command_parser, main_parser
from agent.cli.manual import pages, roff, script
from simulators.services.install import programs

ASK = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
_shtab_oncegate
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def bash_script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("completion") / "oncegate"
    file.write_text(script("bash"))
    return file


def offered(script: Path, *words: str, folder: Path | None = None) -> list[str]:
    command = ["bash", "--norc", "-c", ASK, "bash", str(script), "oncegate", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    assert done.stderr == ""
    return sorted(filter(None, done.stdout.splitlines()))


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("ver",), ["verify", "version"]),
        (("--config", "x", "sup"), ["support-bundle"]),
        (("help", "tr"), ["trace"]),
        (("rejected", "--via", "z"), ["zigbee2mqtt"]),
        (("events", "--device", ""), []),
    ],
)
def test_bash_offers_what_fits(words: tuple[str, ...], found: list[str], bash_script: Path) -> None:
    assert offered(bash_script, *words) == found


def test_bash_offers_every_command_and_every_option(bash_script: Path) -> None:
    assert offered(bash_script, "") == sorted([*COMMANDS, "help"])
    for name, command in COMMANDS.items():
        assert offered(bash_script, name, "-") == sorted(command_parser(command)._option_string_actions)


def test_bash_offers_files_where_a_file_is_expected(bash_script: Path, tmp_path: Path) -> None:
    (tmp_path / "my event.json").touch()
    for words in (("--config", "my"), ("decode", "my"), ("decode", "--devices", "my")):
        assert offered(bash_script, *words, folder=tmp_path) == ["my event.json"]


def test_zsh_takes_its_script_for_the_completion_of_the_program(tmp_path: Path) -> None:
    file = tmp_path / "_oncegate"
    file.write_text(script("zsh"))
    assert file.read_text().startswith("#compdef oncegate\n")
    subprocess.run([programs.require("zsh"), "-n", file], check=True)


PAGES = pages()


def rendered(text: str) -> str:
    """Return a page as `man` shows it on a wide terminal; fail where roff warns of anything."""
    command = [programs.require("groff"), "-man", "-Tascii", "-ww", "-rLL=200n", "-P-cbou"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_the_help_as_it_is_printed(name: str) -> None:
    command = COMMANDS.get(name.removesuffix(".1").removeprefix("oncegate-"))
    parser = main_parser() if command is None else command_parser(command)
    shown = rendered(PAGES[name])
    assert f"{name.removesuffix('.1')} - " in shown
    for line in (*parser._option_string_actions, *(parser.epilog or "").splitlines()):
        assert line in shown


@pytest.mark.parametrize("text", [".so /etc/passwd", "'ft B", r"a\fB and \(ha", "~ ^ ` - '"])
def test_what_roff_would_take_for_a_request_is_text(text: str) -> None:
    assert rendered(roff(text)).split("\n")[0].strip() == text
