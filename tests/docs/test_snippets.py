"""Every command in the documents is right: ours have options that exist, and of the others some are executed."""

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.cli import commands as agent_commands
from cloud.cli import commands as cloud_commands
from simulators import demo
from simulators.certify import command as certify
from simulators.cli import _COMMANDS as SIMULATOR_COMMANDS
from simulators.run import options as run_options
from simulators.services.install import programs as installed
from simulators.services.process import Process
from tests.docs.pages import ROOT, blocks
from tests.docs.snippets import Snippet, snippets
from tests.support.agent_process import agent_process, configured, wait_until_ready
from tests.support.commands import output_of

NO_COMMANDS = ("COMMAND", "0.1.0")
"""Where a page means any command, or shows the output of one."""
FINGERPRINT = "1876d2e5f34f91105e52555b000b5edc"
SNIPPETS = list(snippets())
PROGRAMS: dict[str, Any] = {"oncegate": agent_commands, "oncegate-cloud": cloud_commands}
"""The modules of their commands."""


def parsed(snippet: Snippet) -> None:
    """Parse the arguments as the program does; it exits where they are wrong."""
    command, *words = snippet.words[1:]
    if snippet.program in PROGRAMS:
        PROGRAMS[snippet.program].parse([command, *words])
    else:
        assert command in SIMULATOR_COMMANDS
        checked = {"run": run_options.parse, "demo": demo.parse, "certify": certify.parse}
        if command in checked:
            checked[command](words, "oncegate-sim")


def mentioned(snippet: Snippet) -> None:
    """Check the name of the command and of the options; a sentence may leave out arguments."""
    command, *words = snippet.words[1:]
    options = {word.partition("=")[0] for word in words if word.startswith("--")}
    if snippet.program in PROGRAMS:
        commands = PROGRAMS[snippet.program]
        help_ = commands.command_parser(commands.COMMANDS[command]).format_help()
        assert [option for option in options if option not in help_] == []
    else:
        assert command in SIMULATOR_COMMANDS


OURS = [snippet for snippet in SNIPPETS if snippet.program in (*PROGRAMS, "oncegate-sim")]


@pytest.mark.parametrize("snippet", sorted(set(OURS), key=str), ids=str)
def test_a_command_of_a_page_has_options_that_exist(
    snippet: Snippet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    (tmp_path / "plant.py").write_text("\n".join(blocks(ROOT / "docs" / "processing.md", "python")))
    monkeypatch.syspath_prepend(tmp_path)
    if snippet.words[1] in NO_COMMANDS:
        return
    try:
        (mentioned if snippet.mentioned and not snippet.words[1].startswith("-") else parsed)(snippet)
    except SystemExit as end:
        if end.code:
            pytest.fail(f"{snippet}: wrong usage")


def test_each_target_of_make_exists() -> None:
    phony = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    targets = {target for line in phony for target in line.split()}
    named = {word for one in SNIPPETS if one.program == "make" for word in one.words[1:] if "=" not in word}
    assert named - targets == set()


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with agent_process(configured(tmp_path_factory.mktemp("agent"), coap="[::]:0")) as process:
        process.start()
        yield process


def localised(line: str, agent: Process) -> str:
    """Return a line of a page for the ports of the test's agent and for this checkout's program."""
    ports = wait_until_ready(agent)
    line = line.replace("127.0.0.1:8580", f"127.0.0.1:{ports['http']}")
    line = line.replace("--coap gateway.local", f"--coap 127.0.0.1:{ports['coap']}")
    line = re.sub(r"coap://(127\.0\.0\.1|\[::1\])/", rf"coap://\1:{ports['coap']}/", line)
    return re.sub(r"(^|\| )(?:\.venv/bin/)?oncegate ", rf"\1{shlex.quote(sys.executable)} -m agent.cli.main ", line)


def shell(line: str, agent: Process) -> str:
    return output_of("sh", "-eu", "-c", localised(line, agent), cwd=ROOT)


def lines_with(page: str, text: str) -> list[str]:
    joined = (ROOT / page).read_text().replace("\\\n", " ")
    return [line.strip() for line in joined.splitlines() if line.strip().startswith(text)]


def test_the_client_of_libcoap_sends_the_event(agent: Process) -> None:
    if installed.find("coap-client-notls") is None:
        pytest.skip("libcoap's client is missing: Debian's libcoap3-bin")
    (line,) = lines_with("docs/operations.md", "coap-client-notls")
    assert shell(line, agent) == ""
    assert FINGERPRINT in shell(f"oncegate events --config {agent.command.arguments[-1]}", agent)


def test_curl_posts_the_event(agent: Process) -> None:
    (line,) = lines_with("docs/http.md", "curl")
    assert FINGERPRINT in shell(line, agent)


def test_a_token_is_created_with_its_hash(agent: Process) -> None:
    (recipe,) = [block for block in blocks(ROOT / "docs" / "http.md", "sh") if block.startswith("token=")]
    assert re.fullmatch(r"[0-9a-f]{64}  -\n", shell(recipe, agent))


def test_commands_in_the_guide_of_firmware_work(agent: Process) -> None:
    (send,) = [line for line in lines_with("docs/sensors.md", "oncegate send") if "--coap" in line]
    assert shell(send, agent).startswith("acknowledged")
    (decode,) = lines_with("docs/sensors.md", "echo a2")
    assert shell(decode, agent)
