"""Check whether anybody listens at the bootstrap servers, before a client is opened that would try all the time.

librdkafka connects every 50 ms as long as a question waits for a broker, whatever its backoff is. Where nobody listens
one attempt to connect tells as much, and says why.
"""

from __future__ import annotations

import os
import selectors
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from errno import EINPROGRESS
from functools import partial
from typing import Any, Final

from agent.forward.errors import UnreachableError
from agent.forward.kafka.attempt import attempt
from agent.forward.kafka.client import REQUEST_SECONDS_MAX

PORT: Final = "9092"
"""Where a server of Kafka listens unless its name says otherwise, for librdkafka too."""
_STOP_SECONDS: Final = 0.5
"""How soon it notices that the agent stops."""

_Place = tuple[socket.AddressFamily, Any]


def knock(bootstrap_servers: str, stop: threading.Event) -> None:
    """Return as soon as one of the servers takes a connection; raise UnreachableError with a reason where none does."""
    places, reason = _resolve(bootstrap_servers, stop)
    with ExitStack() as stack, selectors.DefaultSelector() as waiting:
        for family, address in places:
            caller = stack.enter_context(socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK))
            error = caller.connect_ex(address)
            if error == 0:
                return
            if error == EINPROGRESS:
                waiting.register(caller, selectors.EVENT_WRITE, address)
            else:
                reason = _reason(address, error)
        deadline = time.monotonic() + REQUEST_SECONDS_MAX
        while waiting.get_map() and time.monotonic() < deadline and not stop.is_set():
            for key, _ in waiting.select(_STOP_SECONDS):
                caller = key.fileobj  # type: ignore[assignment]  # we have registered sockets only
                error = caller.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if error == 0:
                    return
                reason = _reason(key.data, error)
                waiting.unregister(caller)
        if left := [key.data for key in waiting.get_map().values()]:
            reason = f"{_written(left[0])}: no answer"
    raise UnreachableError(reason)


def parse(bootstrap_servers: str) -> Iterator[tuple[str, str]]:
    """Return host and port of each server, as librdkafka does: `[protocol://]host[:port]`, separated by commas."""
    for server in filter(None, map(str.strip, bootstrap_servers.split(","))):
        place = server.rpartition("://")[2]
        host, sign, port = place.rpartition(":")
        if not sign or port.endswith("]"):
            host, port = place, PORT
        yield host.removeprefix("[").removesuffix("]"), port


def _resolve(bootstrap_servers: str, stop: threading.Event) -> tuple[Sequence[_Place], str]:
    """Return every address of every server, and why there is none of the last that has none."""
    places: list[_Place] = []
    reason = f"kafka.bootstrap_servers names no server: {bootstrap_servers!r}"
    for host, port in parse(bootstrap_servers):
        try:
            look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
            found = attempt(look_up, REQUEST_SECONDS_MAX, stop, f"resolving {host}")
        except (OSError, UnicodeError, UnreachableError) as error:
            reason = f"{host}: {error.strerror if isinstance(error, socket.gaierror) else error}"
        else:
            places += [(family, address) for family, _, _, _, address in found]
    return places, reason


def _reason(address: tuple[Any, ...], error: int) -> str:
    return f"{_written(address)}: {os.strerror(error)}"


def _written(address: tuple[Any, ...]) -> str:
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
