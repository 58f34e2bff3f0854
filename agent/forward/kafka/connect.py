"""The reachability check of the bootstrap servers, made before a client is opened.

librdkafka connects every 50 ms while a request waits for a broker, whatever its backoff. Where no server listens, one
attempt to connect is enough, and yields the reason.
"""

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

PORT: Final = "9092"
"""Kafka's default port, as in librdkafka."""
CONNECT_SECONDS_MAX: Final = 10.0
"""How long a server may take to accept a connection, and its name to be resolved."""
_STOP_SECONDS: Final = 0.5
"""How soon the check ends when the agent stops."""

SERVERS_MAX: Final = 8
"""How many servers an error names."""

_Address = tuple[socket.AddressFamily, Any]
_Failure = tuple[str, str]
"""A server, and why it cannot be reached."""


def check_reachable(bootstrap_servers: str, stop: threading.Event) -> None:
    """Return as soon as one server accepts a connection; raise UnreachableError with all reasons where none does."""
    addresses, failures = _resolve(bootstrap_servers, stop)
    with ExitStack() as stack, selectors.DefaultSelector() as waiting:
        for family, address in addresses:
            connection = stack.enter_context(socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK))
            error = connection.connect_ex(address)
            if error == 0:
                return
            if error == EINPROGRESS:
                waiting.register(connection, selectors.EVENT_WRITE, address)
            else:
                failures.append((_text(address), os.strerror(error)))
        deadline = time.monotonic() + CONNECT_SECONDS_MAX
        while waiting.get_map() and time.monotonic() < deadline and not stop.is_set():
            for key, _ in waiting.select(_STOP_SECONDS):
                connection = key.fileobj  # type: ignore[assignment]  # only sockets are registered
                error = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if error == 0:
                    return
                failures.append((_text(key.data), os.strerror(error)))
                waiting.unregister(connection)
        failures += [(_text(key.data), "no answer") for key in waiting.get_map().values()]
    raise UnreachableError(_summary(failures) or f"kafka.bootstrap_servers names no server: {bootstrap_servers!r}")


def parse(bootstrap_servers: str) -> Iterator[tuple[str, str]]:
    """Yield host and port of each server, as librdkafka does: `[protocol://]host[:port]`, separated by commas."""
    for server in filter(None, map(str.strip, bootstrap_servers.split(","))):
        server_address = server.rpartition("://")[2]
        host, sign, port = server_address.rpartition(":")
        if not sign or port.endswith("]"):
            host, port = server_address, PORT
        yield host.removeprefix("[").removesuffix("]"), port


def _resolve(bootstrap_servers: str, stop: threading.Event) -> tuple[Sequence[_Address], list[_Failure]]:
    """Return every address of every server, and the failures of the servers without one."""
    addresses: list[_Address] = []
    failures: list[_Failure] = []
    for host, port in parse(bootstrap_servers):
        try:
            look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
            found = attempt(look_up, CONNECT_SECONDS_MAX, stop, f"resolving {host}")
        except (OSError, UnicodeError, UnreachableError) as error:
            failures.append((host, str(error.strerror if isinstance(error, socket.gaierror) else error)))
        else:
            addresses += [(family, address) for family, _, _, _, address in found]
    return addresses, failures


def _summary(failures: Sequence[_Failure]) -> str:
    """Return each reason behind the servers that have it; of many servers, the first ones."""
    servers: dict[str, list[str]] = {}
    for server, reason in failures[:SERVERS_MAX]:
        servers.setdefault(reason, []).append(server)
    more = f"; {len(failures) - SERVERS_MAX} more" if len(failures) > SERVERS_MAX else ""
    return "; ".join(f"{', '.join(named)}: {reason}" for reason, named in servers.items()) + more


def _text(address: tuple[Any, ...]) -> str:
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
