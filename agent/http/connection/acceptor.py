"""Accepts connections within bounds that hold from the first packet on, including TLS handshakes."""

import asyncio
import logging
import math
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from typing import Any

from agent.http.connection.protocol import Protocol
from agent.http.limits import Limits

RETRY_SECONDS = 1.0
"""The wait after the kernel had no descriptor or memory for another connection."""
QUIET_SECONDS = 60.0
"""After this time without a refusal, the next one is logged again."""

_log = logging.getLogger(__name__)


class Acceptor:
    """The connections of one listening socket, each served by a task."""

    def __init__(
        self, listener: socket.socket, make: Callable[[], Protocol], tls: ssl.SSLContext | None, limits: Limits
    ) -> None:
        self._listener = listener
        self._make = make
        self.tls = tls
        self._seconds_max = limits.head_seconds_max
        self._count_max = limits.connections_max if tls is None else limits.tls_connections_max
        self._open: set[asyncio.Task[None]] = set()
        self._open_by_origin: Counter[str] = Counter()
        """How many connections are open, by origin."""
        self._refused_last = -math.inf

    def __len__(self) -> int:
        return len(self._open)

    async def run(self) -> None:
        """Accept until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, address = await loop.sock_accept(self._listener)
            except OSError as error:
                _log.warning("http=accept-failed error=%r retry_seconds=%g", str(error), RETRY_SECONDS)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                self._admit(sock, address)
                await asyncio.sleep(0)  # other tasks run now: accepting does not wait while clients are queued

    async def close(self) -> None:
        for task in self._open:
            task.cancel()
        if self._open:
            await asyncio.wait(self._open)

    def _admit(self, sock: socket.socket, address: tuple[Any, ...]) -> None:
        origin = origin_of(address[0])
        if len(self._open) >= self._count_max or self._open_by_origin[origin] >= max(1, self._count_max // 2):
            sock.close()
            now, of_this_origin = asyncio.get_running_loop().time(), self._open_by_origin[origin]
            if now - self._refused_last > QUIET_SECONDS:
                _log.warning("http=connections-refused open=%d of_this_origin=%d", len(self._open), of_this_origin)
            self._refused_last = now
            return
        task = asyncio.create_task(self._serve(sock), name="http-connection")
        self._open.add(task)
        self._open_by_origin[origin] += 1

        def forget(task: asyncio.Task[None]) -> None:
            self._open.discard(task)
            self._open_by_origin[origin] -= 1
            if not self._open_by_origin[origin]:
                del self._open_by_origin[origin]

        task.add_done_callback(forget)

    async def _serve(self, sock: socket.socket) -> None:
        """Serve a connection to its end; its TLS errors are suppressed."""
        limited = () if self.tls is None else ("ssl_handshake_timeout", "ssl_shutdown_timeout")
        times = dict.fromkeys(limited, self._seconds_max)
        with suppress(OSError):
            _, protocol = await asyncio.get_running_loop().connect_accepted_socket(
                self._make, sock, ssl=self.tls, **times
            )
            await protocol.lost()


def origin_of(host: str) -> str:
    """Return what counts as one client: an IPv4 address, or the /64 of an IPv6 address."""
    address = ip_address(host.partition("%")[0])
    if not isinstance(address, IPv6Address):
        return str(address)
    return str(address.ipv4_mapped or IPv6Address(int(address) >> 64 << 64))
