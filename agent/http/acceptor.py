"""Accepts connections, so that what each takes is bounded from its first packet on: TLS handshakes count, too."""

from __future__ import annotations

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

from agent.http.limits import Limits
from agent.http.protocol import Protocol

RETRY_SECONDS = 1.0
"""After the kernel had no descriptor or memory for another connection."""
QUIET_SECONDS = 60.0
"""Without a refusal for so long, the next is worth a line in the log again."""

_log = logging.getLogger(__name__)


class Acceptor:
    """The connections of one listening socket, each with a task that ends with it."""

    def __init__(
        self, listener: socket.socket, make: Callable[[], Protocol], tls: ssl.SSLContext | None, limits: Limits
    ) -> None:
        self._listener = listener
        self._make = make
        self._tls = tls
        self._seconds_max = limits.head_seconds_max
        self._count_max = limits.connections_max if tls is None else limits.tls_connections_max
        self._open: set[asyncio.Task[None]] = set()
        self._from: Counter[str] = Counter()
        """How many are open, by their origin."""
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
                self._take(sock, address)
                await asyncio.sleep(0)  # other work gets its turn: accepting is never waited for while clients come

    async def close(self) -> None:
        """End the connections that are left."""
        for task in self._open:
            task.cancel()
        if self._open:
            await asyncio.wait(self._open)

    def _take(self, sock: socket.socket, address: tuple[Any, ...]) -> None:
        origin = origin_of(address[0])
        if len(self._open) >= self._count_max or self._from[origin] >= max(1, self._count_max // 2):
            sock.close()
            self._say_refused(origin)
            return
        task = asyncio.create_task(self._serve(sock), name="http-connection")
        self._open.add(task)
        self._from[origin] += 1

        def forget(task: asyncio.Task[None]) -> None:
            self._open.discard(task)
            self._from[origin] -= 1
            if not self._from[origin]:
                del self._from[origin]

        task.add_done_callback(forget)

    async def _serve(self, sock: socket.socket) -> None:
        """Serve a connection to its end; what it breaks of TLS concerns nobody else."""
        times = {} if self._tls is None else {"ssl_handshake_timeout": self._seconds_max}
        if self._tls is not None:
            times["ssl_shutdown_timeout"] = self._seconds_max
        with suppress(OSError):
            _, protocol = await asyncio.get_running_loop().connect_accepted_socket(
                self._make, sock, ssl=self._tls, **times
            )
            await protocol.lost()

    def _say_refused(self, origin: str) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._refused_last > QUIET_SECONDS:
            _log.warning("http=connections-refused open=%d of_this_origin=%d", len(self._open), self._from[origin])
        self._refused_last = now


def origin_of(host: str) -> str:
    """Return who counts as one client: an IPv4 address, or the /64 that a host of IPv6 has to itself."""
    address = ip_address(host.partition("%")[0])
    if not isinstance(address, IPv6Address):
        return str(address)
    return str(address.ipv4_mapped or IPv6Address(int(address) >> 64 << 64))
