"""The log: fields for the journal, and a bounded rate."""

import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.systemd.journal import RATE_MESSAGES, RATE_SECONDS, JournalHandler, RateLimit, fields_of


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


def test_a_flood_of_one_message_is_cut_and_counted_and_others_pass() -> None:
    now = [0.0]
    limit = RateLimit(lambda: now[0])
    passed = [limit.filter(record("a=%d", number)) for number in range(100)]
    assert passed == [True] * RATE_MESSAGES + [False] * (100 - RATE_MESSAGES)
    assert limit.filter(record("b=1"))
    now[0] = RATE_SECONDS
    following = record("a=%d", 100)
    assert limit.filter(following)
    assert following.getMessage() == f"a=100 suppressed={100 - RATE_MESSAGES}"
    assert fields_of(following, "text")["ONCEGATE_SUPPRESSED"] == str(100 - RATE_MESSAGES)


def test_a_message_without_arguments_may_have_a_percent_sign() -> None:
    now = [0.0]
    limit = RateLimit(lambda: now[0])
    for _ in range(100):
        limit.filter(record("100% full"))
    now[0] = RATE_SECONDS
    following = record("100% full")
    assert limit.filter(following)
    assert following.getMessage() == f"100% full suppressed={100 - RATE_MESSAGES}"
