"""Whether a server listens at the bootstrap addresses, and the reason if not."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from agent.forward.errors import UnreachableError
from agent.forward.kafka.connect import CONNECT_SECONDS_MAX, check_reachable

CLOSED = "127.0.0.1:1"


@pytest.fixture
def listener() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def silent() -> Iterator[str]:
    """Yield a server that accepts no further connection: its backlog is full, and is never emptied."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(8):
            caller = stack.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(server.getsockname())
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("servers", ["{0}", f"{CLOSED}, {{0}}", f"SASL_SSL://{{0}},{CLOSED}", "nowhere.invalid:1,{0}"])
def test_one_server_that_listens_is_enough(servers: str, listener: str) -> None:
    check_reachable(servers.format(listener), threading.Event())


def test_one_that_listens_is_not_kept_waiting_by_one_that_is_silent(silent: str, listener: str) -> None:
    began = time.monotonic()
    check_reachable(f"{silent},{listener}", threading.Event())
    assert time.monotonic() - began < CONNECT_SECONDS_MAX


@pytest.mark.parametrize(
    ("servers", "reason"),
    [
        (CLOSED, r"^127\.0\.0\.1:1: Connection refused$"),
        ("[::1]:1", r"^\[::1\]:1: "),
        ("[::1]", r"^\[::1\]:9092: "),
        ("nowhere.invalid", r"^nowhere\.invalid: "),
        (f"{CLOSED},127.0.0.1:2", r"^127\.0\.0\.1:1, 127\.0\.0\.1:2: Connection refused$"),
        (f"nowhere.invalid,{CLOSED}", r"^nowhere\.invalid: .*; 127\.0\.0\.1:1: Connection refused$"),
        (",".join(f"127.0.0.1:{port}" for port in range(1, 11)), r":8: Connection refused; 2 more$"),
        (",", "names no server"),
    ],
)
def test_the_reason_names_the_server(servers: str, reason: str) -> None:
    with pytest.raises(UnreachableError, match=reason):
        check_reachable(servers, threading.Event())


def test_a_server_that_does_not_answer_is_given_up(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.forward.kafka.connect.CONNECT_SECONDS_MAX", 0.1)

    with pytest.raises(UnreachableError, match=f"{silent}: no answer"):
        check_reachable(silent, threading.Event())


def test_it_ends_with_the_agent(silent: str) -> None:
    stop = threading.Event()
    stop.set()

    with pytest.raises(UnreachableError):
        check_reachable(silent, stop)
