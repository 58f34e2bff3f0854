"""`oncegate top`: its figures and their layout, and in a terminal beside a running agent."""

import fcntl
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from agent.cli.top.figures import Figures, Sample, between
from agent.cli.top.frame import frame
from agent.terminal import Colour
from simulators.services import ports
from simulators.services.process import Process
from tests.agent.cli.running import RunningAgent
from tests.support.agent_process import agent_process
from tests.support.waiting import wait_until

ENTER, LEAVE = b"\x1b[?1049h\x1b[?25l", b"\x1b[?25h\x1b[?1049l"


@dataclass
class Terminal:
    """A terminal of 80 x 24 in which a command runs."""

    leader: int
    process: subprocess.Popen[bytes]
    output: bytearray = field(default_factory=bytearray)

    def type(self, keys: bytes) -> None:
        os.write(self.leader, keys)

    def modes(self) -> list[object]:
        return termios.tcgetattr(self.leader)

    def frames(self) -> list[list[str]]:
        """Return the lines of each frame, without control sequences."""
        text = bytes(self.output).decode("utf-8", "replace").partition(LEAVE.decode())[0]
        frames = [re.sub("\x1b\\[[0-9;?]*[A-Za-z]", "", frame) for frame in text.split("\x1b[H")[1:]]
        return [[line.rstrip() for line in frame.split("\r\n")] for frame in frames]

    def shows(self, words: str) -> bool:
        return any(words in line for frame in self.frames()[-1:] for line in frame)


@contextmanager
def terminal(*command: str, rows: int = 24, columns: int = 80) -> Iterator[Terminal]:
    """Run a command in a session of its own, whose controlling terminal is the new one."""
    leader, follower = pty.openpty()
    fcntl.ioctl(leader, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    setsid = shutil.which("setsid")
    assert setsid is not None
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "", "LINES": ""}
    process = subprocess.Popen(
        (setsid, "--ctty", *command), stdin=follower, stdout=follower, stderr=follower, env=environment
    )
    shown = Terminal(leader, process)

    def read() -> None:
        while True:
            try:
                shown.output.extend(os.read(leader, 65_536))
            except OSError:  # Linux: the other side is closed
                return

    reader = Thread(target=read)
    reader.start()
    try:
        yield shown
    finally:
        process.kill()
        process.wait()
        os.close(follower)
        reader.join()
        os.close(leader)


@pytest.mark.parametrize(("end", "status"), [(b"q", 0), (b"\x03", 0), (signal.SIGTERM, 143), (signal.SIGHUP, 143)])
def test_the_terminal_is_given_back_as_it_was(
    end: bytes | signal.Signals, status: int, running_agent: RunningAgent
) -> None:
    with terminal(*running_agent.command("top", "--interval", "0.2")) as shown:
        before = shown.modes()
        wait_until(lambda: len(shown.frames()) > 1 and shown.shows("q quits"), "a frame is drawn")
        assert shown.modes() != before
        if isinstance(end, bytes):
            shown.type(end)
        else:
            shown.process.send_signal(end)
        assert shown.process.wait(60) == status
        wait_until(lambda: shown.output.endswith(LEAVE), "the screen is left")
        assert shown.modes() == before
    assert shown.output.startswith(ENTER)
    assert all(len(frame) == 24 and max(map(len, frame)) <= 80 for frame in shown.frames())


def test_a_frame_follows_the_size_of_the_terminal_and_shows_new_events(running_agent: RunningAgent) -> None:
    with terminal(*running_agent.command("top", "--interval", "0.2")) as shown:
        wait_until(lambda: bool(shown.frames()), "a frame is drawn")
        event = b'{"device":"urn:top","id":1}'
        running_agent.api.post("/api/v1/events", event, "application/json")
        wait_until(lambda: shown.shows("urn:top"), "the event is shown")
        fcntl.ioctl(shown.leader, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        os.kill(shown.process.pid, signal.SIGWINCH)
        wait_until(lambda: len(shown.frames()[-1]) == 40, "the frame is as high as the terminal")
        shown.type(b"q")
        assert shown.process.wait(60) == 0


@pytest.fixture
def killable_agent(tmp_path: Path, running_agent: RunningAgent) -> Iterator[tuple[RunningAgent, Process]]:
    """Start an agent of the test's own."""
    configuration = tmp_path / "oncegate.toml"
    text = running_agent.configuration.read_text()
    text = text.replace(str(running_agent.configuration.parent), str(tmp_path))
    (port,) = ports.free(1)
    text = text.replace("[coap]", "[coap]\nenabled = false")
    configuration.write_text(text.replace(str(running_agent.http_port), str(port)))
    with agent_process(configuration) as agent:
        agent.start()
        agent.wait_for_log("agent=ready")
        yield RunningAgent(configuration, 0, port), agent


def test_an_agent_that_dies_is_said_to_be_gone_and_seen_again_when_it_is_back(
    killable_agent: tuple[RunningAgent, Process],
) -> None:
    running, agent = killable_agent
    with terminal(*running.command("top", "--interval", "0.1")) as shown:
        wait_until(lambda: bool(shown.frames()), "a frame is drawn")
        agent.kill()
        wait_until(lambda: shown.shows("agent not responding since"), "the end is noticed")
        agent.start()
        agent.wait_for_log("agent=ready")
        wait_until(lambda: not shown.shows("agent not responding"), "the agent is seen again")
        shown.type(b"q")
        assert shown.process.wait(60) == 0


def test_a_pipe_gets_one_frame_or_json(running_agent: RunningAgent) -> None:
    done = running_agent.oncegate("top", "--interval", "0.1")
    assert (done.returncode, len(done.stdout.splitlines()), "\x1b" in done.stdout) == (0, 24, False)
    assert "\x1b" not in running_agent.on_terminal("top", "--interval", "0.1")  # which is a dumb one
    figures = json.loads(running_agent.oncegate("top", "--json", "--once", "--interval", "0.1").stdout)
    assert (figures["gateway"], figures["accepted"] >= 0) == ("gw1", True)


def test_without_an_agent_there_is_a_sentence_and_no_screen(running_agent: RunningAgent) -> None:
    done = running_agent.oncegate("top", "--url", "http://127.0.0.1:1")
    assert done.returncode == 1
    assert "the agent does not answer: http://127.0.0.1:1: Connection refused; see systemctl status" in done.stderr
    assert running_agent.oncegate("top", "--interval", "0").returncode == 2


STARTED = 1_767_225_600_000
LINKS = {"kafka": {"state": "unreachable", "up": False, "since": STARTED, "reason": "kafka-1:9092:\x1b[31m refused"}}
DEVICE = {"device": "urn:dev:mac:00158d0001a2b3c4", "events": 3, "duplicates": 2, "rejected": 1, "last_seen": STARTED}
VALUES: dict[str, Any] = {
    "data": {"t": 21.5, "on": True, "x": "\x1b"},
    "units": {"t": "Cel"},
    "outcome": "accepted",
    "reason": "",
}
ENTRY = {"outcome": "refused", "via": "coap", "device": "x" * 99, "reason": "why", "fingerprint": ""}


def sample(at: float, now: int = STARTED + 60_000, **metrics: float) -> Sample:
    status = {"gateway": "gw1", "oldest_unprocessed": STARTED}
    live = {"status": status, "version": "1", "form": "pure", "now": now, "started": STARTED, "clock": "trusted"}
    live |= {"trouble": "", "links": LINKS, "devices": [DEVICE] * 40, "feed": [ENTRY] * 40}
    found: dict[tuple[str, tuple[tuple[str, str], ...]], float]
    found = {("oncegate_commit_seconds_bucket", (("le", bound),)): 0.0 for bound in ("0.005", "0.01", "+Inf")}
    for name, value in metrics.items():
        metric, _, label = name.partition("__")
        key, _, word = label.partition("_")
        labels = ((key, {"5ms": "0.005", "10ms": "0.01", "all": "+Inf"}.get(word, word)),) if label else ()
        found[f"oncegate_{metric}", labels] = value
    return Sample(at, live, found)


BEFORE = sample(
    10.0, events_accepted_total__via_coap=100, outbox_events__state_new=5, outbox_events__state_forwarded=50
)
AFTER = sample(
    12.0,
    events_accepted_total__via_coap=140,
    events_accepted_total__via_http=2,
    outbox_events__state_new=7,
    outbox_events__state_forwarded=40,
    commit_seconds_count=20,
    commit_seconds_sum=0.06,
    commit_seconds_bucket__le_5ms=18,
    commit_seconds_bucket__le_10ms=20,
    commit_seconds_bucket__le_all=20,
)


def test_the_figures_are_those_of_the_interval() -> None:
    figures = between(BEFORE, AFTER)
    assert (figures.accepted, figures.accepted_by_via["coap"], figures.accepted_by_via["http"]) == (21, 20, 1)
    assert (figures.sent, figures.confirmed) == (20, 25)
    assert (figures.new, figures.forwarded, figures.oldest_seconds, figures.uptime_seconds) == (7, 40, 60, 60)
    assert (figures.commits, figures.commit_seconds_95) == (10, 0.01)
    assert figures.commit_seconds_mean == pytest.approx(0.003)


def test_after_a_restart_of_the_agent_no_rate_is_below_zero() -> None:
    figures = between(AFTER, sample(14.0))
    assert (figures.accepted, figures.commits, figures.commit_seconds_mean) == (0, 0, None)
    assert min(figures.sent, figures.confirmed) >= 0


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (200, 60), (40, 12), (1, 1)])
def test_a_frame_is_as_large_as_the_screen_and_holds_no_control_character(columns: int, rows: int) -> None:
    lines = frame(between(BEFORE, AFTER), columns, rows, "q quits")
    assert [len(text) for text, _ in lines] == [columns] * rows
    assert all(text.isprintable() for text, _ in lines)


def test_a_store_that_cannot_store_says_so() -> None:
    figures: Figures = replace(between(BEFORE, AFTER), trouble="the store is full")
    assert frame(figures, 80, 24, "")[1] == ("nothing can be stored: the store is full".ljust(80), Colour.BAD)
