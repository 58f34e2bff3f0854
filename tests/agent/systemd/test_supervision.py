"""The agent under a service manager: systemd receives its notifications, and the journal a bounded log with fields."""

import asyncio
import logging
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent.systemd.journal import RATE_MESSAGES, RATE_SECONDS, JournalHandler, RateLimit, fields_of
from agent.systemd.notifier import SALVAGE_SECONDS_MAX
from simulators.services.process import Process
from tests.agent.http.client import Client
from tests.agent.test_damage import damage_a_page_of, store
from tests.support.agent_process import agent_process, configured, wait_until_ready
from tests.support.hanging import hung
from tests.support.waiting import wait_until

__all__ = ["store"]
WATCHDOG_SECONDS = 3


class Manager:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "notify"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(self.path))
        self._socket.settimeout(0.1)
        self.received: list[str] = []

    def listen(self) -> list[str]:
        while True:
            try:
                self.received += self._socket.recv(4096).decode().splitlines()
            except TimeoutError:
                return self.received

    def count(self, message: str) -> int:
        return self.listen().count(message)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(tmp_path)
    yield manager
    manager.close()


@pytest.fixture
def agent(manager: Manager, tmp_path: Path) -> Iterator[Process]:
    environment = {"NOTIFY_SOCKET": str(manager.path), "WATCHDOG_USEC": str(WATCHDOG_SECONDS * 1_000_000)}
    with agent_process(configured(tmp_path), environment) as process:
        yield process


def asked(agent: Process, path: str) -> int:
    """Return the code with which the agent answers a GET."""
    return asyncio.run(Client(wait_until_ready(agent)["http"]).get(path)).code


@pytest.mark.guarantee(3)
def test_it_is_ready_only_when_it_can_store_and_answer(agent: Process, manager: Manager, tmp_path: Path) -> None:
    agent.start()
    wait_until(lambda: manager.count("READY=1") == 1, "the agent reports that it is ready")
    assert (tmp_path / "state" / "events.db").exists()
    assert asked(agent, "/readyz") == 200
    assert agent.terminate() == 0
    assert manager.count("STOPPING=1") == 1


@pytest.mark.guarantee(3)
@pytest.mark.heavy
def test_the_watchdog_is_fed_by_the_commit_loop_and_by_nothing_else(agent: Process, manager: Manager) -> None:
    agent.start()
    wait_until(lambda: manager.count("WATCHDOG=1") > 2, "the watchdog is fed again and again")
    with hung(agent.pid, "store-writer"):
        manager.listen()
        before = manager.count("WATCHDOG=1")
        over = threading.Event()
        over.wait(2 * WATCHDOG_SECONDS)  # twice systemd's timeout
        assert asked(agent, "/healthz") == 200  # the event loop itself still runs
        assert manager.count("WATCHDOG=1") <= before + 1
    wait_until(lambda: manager.count("WATCHDOG=1") > before + 2, "the watchdog is fed again")


@pytest.mark.guarantee(3)
def test_an_agent_that_starts_with_a_full_store_is_watched_and_reports_why_it_stores_nothing(
    agent: Process, manager: Manager, tmp_path: Path
) -> None:
    file = tmp_path / "oncegate.toml"
    small = file.read_text() + "[store]\nmax_bytes = 1000\n"  # less than an empty store has
    file.write_text(small)
    agent.start()
    wait_until(lambda: manager.count("WATCHDOG=1") > 1, "the watchdog is armed and fed")
    assert manager.count("READY=1") == 1
    assert [line for line in manager.received if line.startswith("STATUS=")][-1].startswith("STATUS=cannot store:")
    assert asked(agent, "/readyz") == 503
    agent.terminate()
    file.write_text(small.replace("1000", '"1MiB"'))
    manager.received.clear()
    agent.start()
    wait_until(lambda: any(line.endswith("0 processed") for line in manager.listen()), "it reports that it stores")
    assert "STATUS=cannot store" not in "".join(manager.received)


def test_a_salvage_of_any_length_is_no_reason_for_the_watchdog(
    agent: Process, manager: Manager, tmp_path: Path, store: Path
) -> None:
    configuration = tmp_path / "oncegate.toml"
    configuration.write_text(configuration.read_text() + '[store]\nkeep_processed = "0s"\n')
    damage_a_page_of(store)  # which the purge detects
    agent.start()
    agent.wait_for_log("store=salvaged")
    usual, patient = f"WATCHDOG_USEC={WATCHDOG_SECONDS}000000", f"WATCHDOG_USEC={SALVAGE_SECONDS_MAX}000000"

    def told() -> list[str]:
        return [line for line in manager.listen() if line.startswith(("READY", "WATCHDOG_USEC"))]

    # The purge may detect the damage before the agent was ready for the first time.
    wait_until(lambda: told()[-3:] == [patient, "READY=1", usual], "more time for the salvage, then ready")


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "socket"))
        listening.settimeout(60)
        yield listening


def record(message: str, *arguments: object, level: int = logging.WARNING) -> logging.LogRecord:
    return logging.LogRecord("agent.x", level, "x.py", 7, message, arguments, None, "run")


def test_each_pair_of_a_message_is_a_field(journal: socket.socket, tmp_path: Path) -> None:
    handler = JournalHandler(tmp_path / "socket")
    handler.emit(record("kafka=unreachable since=%s reason=%r events=%d", "now", "no broker, none", 3))
    lines = journal.recv(65_536).decode().splitlines()
    assert {"PRIORITY=4", "ONCEGATE_KAFKA=unreachable", "ONCEGATE_REASON=no broker, none", "ONCEGATE_EVENTS=3"} <= {
        *lines
    }
    assert "MESSAGE=kafka=unreachable since=now reason='no broker, none' events=3" in lines
    handler.close()


def test_the_text_of_a_reason_adds_no_field() -> None:
    hostile = 'it\'s "PRIORITY=0" agent=stopped\nkafka=ok'
    found = fields_of(record("http=refused reason=%r file=%s.%d effect='none at all'", hostile, "x", 3), "text")
    own = {name: value for name, value in found.items() if name.startswith("ONCEGATE_") and name != "ONCEGATE_LOGGER"}
    assert own == {
        "ONCEGATE_HTTP": "refused",
        "ONCEGATE_REASON": hostile,
        "ONCEGATE_FILE": "x.3",
        "ONCEGATE_EFFECT": "none at all",
    }


@pytest.mark.parametrize("foreign", [record("Exception in ASGI application: kafka=%s", "ok"), record("100% a=b c")])
def test_a_message_of_a_library_has_no_fields_of_its_own(foreign: logging.LogRecord) -> None:
    assert [name for name in fields_of(foreign, "text") if name.startswith("ONCEGATE_")] == ["ONCEGATE_LOGGER"]


def test_a_traceback_of_several_lines_stays_one_entry(journal: socket.socket, tmp_path: Path) -> None:
    handler = JournalHandler(tmp_path / "socket")
    failed = record("first\nsecond")
    failed.exc_text = "Traceback"
    handler.emit(failed)
    entry = journal.recv(65_536)
    assert b"MESSAGE\n" + (23).to_bytes(8, "little") + b"first\\nsecond\nTraceback\n" in entry
    handler.close()


@pytest.mark.parametrize("message", ["a=%d", "100% full"])
def test_a_flood_of_one_message_is_cut_and_counted_and_others_pass(
    monkeypatch: pytest.MonkeyPatch, message: str
) -> None:
    def filled(number: int) -> logging.LogRecord:
        return record(message, *([number] if "%d" in message else []))

    now = [0.0]
    monkeypatch.setattr("agent.systemd.journal.time", SimpleNamespace(monotonic=lambda: now[0]))
    limit = RateLimit()
    passed = [limit.filter(filled(number)) for number in range(100)]
    assert passed == [True] * RATE_MESSAGES + [False] * (100 - RATE_MESSAGES)
    assert limit.filter(record("b=1"))
    now[0] = RATE_SECONDS
    following = filled(100)
    assert limit.filter(following)
    assert following.getMessage() == f"{filled(100).getMessage()} suppressed={100 - RATE_MESSAGES}"
    found = fields_of(following, "text").get("ONCEGATE_SUPPRESSED")
    assert found == (str(100 - RATE_MESSAGES) if "=" in message else None)
