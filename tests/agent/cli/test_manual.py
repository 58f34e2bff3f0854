"""Completion in real shells, and the manual pages as roff shows them."""

import os
import pty
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


def type_into_zsh(folder: Path, typed: str) -> str:
    """Type a line that ends in a tab, and run it: `oncegate` prints its words."""
    leader, follower = pty.openpty()
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "TERM": "dumb", "ZDOTDIR": str(folder)}
    (folder / ".zshrc").write_text(
        f"fpath=({folder} $fpath); autoload -Uz compinit; compinit -u -d {folder}/dump\n"
        "unsetopt zle_bracketed_paste 2> /dev/null; PS1='ready>'; oncegate() { print -r -- \"<$*>\" }\n"
    )
    shell = subprocess.Popen(
        [programs.require("zsh"), "-i"], stdin=follower, stdout=follower, stderr=follower, env=environment, cwd=folder
    )
    os.close(follower)
    text = ""
    try:
        for words, end in (("", "ready>"), (f"{typed}\t\n", ">\r\n")):
            os.write(leader, words.encode())
            seen = len(text)
            while end not in text[seen:]:
                text += os.read(leader, 4_096).decode("utf-8", "replace")
    finally:
        shell.kill()
        shell.wait()
        os.close(leader)
    return text[text.rindex("<") + 1 :].partition(">")[0]


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("oncegate --config x ev", "--config x events"),
        ("oncegate rejected --via zig", "rejected --via zigbee2mqtt"),
        ("oncegate decode eve", "decode event.json"),
    ],
)
def test_zsh_completes_what_is_unambiguous(typed: str, line: str, tmp_path: Path) -> None:
    (tmp_path / "_oncegate").write_text(script("zsh"))
    (tmp_path / "event.json").touch()
    assert type_into_zsh(tmp_path, typed).strip() == line


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
