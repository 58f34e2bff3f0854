"""Token buckets that limit the slow path, and the datagrams that wait for them."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable

from agent.coap.udp import Endpoint

WAITING_BYTES_MAX = 1 << 20
"""Bytes of the datagrams that wait for a budget."""
SENDER_SHARE = 8
"""One address has at most this fraction of the places to wait, so that others wait behind few of its datagrams."""


class Budget:
    """A token bucket with a capacity of one second."""

    def __init__(self, per_second: float, now: float) -> None:
        self.per_second = per_second
        self._left = per_second
        self._counted = now

    def take(self, now: float) -> bool:
        """Take a token; return False where none is left."""
        self._left = min(self.per_second, self._left + (now - self._counted) * self.per_second)
        self._counted = now
        if self._left < 1:
            return False
        self._left -= 1
        return True

    @property
    def seconds_to_next(self) -> float:
        """How long it takes from the last attempt until there is a token."""
        return max(0.0, 1 - self._left) / self.per_second


class WaitingLine:
    """Serves datagrams within a budget, in their order; those of about one second wait.

    So a client that sends block after block is slowed down, not interrupted, and one sender's flood delays the
    datagrams of others by its share at most.
    """

    def __init__(self, budget: Budget, serve: Callable[[bytes, Endpoint], None]) -> None:
        self._budget = budget
        self._serve = serve
        self._waiting_max = int(budget.per_second)
        self._of_sender_max = max(1, self._waiting_max // SENDER_SHARE)
        self._waiting: deque[tuple[bytes, Endpoint]] = deque()
        self._bytes = 0
        self._of_sender: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None

    def take(self, datagram: bytes, endpoint: Endpoint, now: float) -> bool:
        """Serve a datagram at once, or as soon as the budget allows; return False where too many wait."""
        if not self._waiting and self._budget.take(now):
            self._serve(datagram, endpoint)
            return True
        if (
            len(self._waiting) >= self._waiting_max
            or self._bytes + len(datagram) > WAITING_BYTES_MAX
            or self._of_sender[endpoint.sender] >= self._of_sender_max
        ):
            return False
        self._waiting.append((datagram, endpoint))
        self._bytes += len(datagram)
        self._of_sender[endpoint.sender] += 1
        if self._timer is None:
            self._wait()
        return True

    def close(self) -> None:
        """Drop what waits, and serve nothing later."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._budget.seconds_to_next, self._serve_waiting)

    def _serve_waiting(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        try:
            while self._waiting and self._budget.take(now):
                datagram, endpoint = self._waiting.popleft()
                self._bytes -= len(datagram)
                self._of_sender[endpoint.sender] -= 1
                if not self._of_sender[endpoint.sender]:
                    del self._of_sender[endpoint.sender]
                self._serve(datagram, endpoint)
        finally:  # also after an error, which the loop logs
            if self._waiting:
                self._wait()
