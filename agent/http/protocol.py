"""Uvicorn's HTTP/1.1 with what it lacks: a time for a head, and a client's address as the host of a URI."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from agent.http.address import written


class Protocol(H11Protocol):
    """One connection; its head has `timeout_keep_alive` to come, from the end of the previous request."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        try:
            address = transport.get_extra_info("peername")
            self.client = (written(address), address[1])
        except (OSError, TypeError):  # the client, or its interface, is gone
            transport.abort()
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_timer()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._await_head()

    def send_400_response(self, msg: str) -> None:
        try:
            super().send_400_response(msg)
        except h11.LocalProtocolError:  # the request has been answered already
            self.transport.close()

    def _await_head(self) -> None:
        self._unset_timer()
        if not self.transport.is_closing():
            self._timer = self.loop.call_later(self.timeout_keep_alive, self._end_unless_in_work)

    def _unset_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end_unless_in_work(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete:
            self.transport.close()
