"""Uvicorn's HTTP/1.1, with time limits for a head and an answer, and the client's address as a URI's host."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from agent.http.address import uri_host


class Protocol(H11Protocol):
    """One connection; a head must arrive within `timeout_keep_alive` of the end of the previous request.

    A client that reads nothing of its answer for as long is disconnected.
    """

    _timer: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    _lost: asyncio.Event | None = None

    async def lost(self) -> None:
        """Wait for the end of the connection; return at once where its TLS handshake was not completed."""
        if self._lost is not None:
            await self._lost.wait()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self._lost = asyncio.Event()
        try:
            address = transport.get_extra_info("peername")
            self.client = (uri_host(address), address[1])
        except (OSError, TypeError):  # the client has disconnected, or its interface is down
            transport.abort()
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_timer()
        self._unset_unread()
        if self._lost is not None:
            self._lost.set()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._await_head()

    def send_400_response(self, msg: str) -> None:
        try:
            super().send_400_response(msg)
        except h11.LocalProtocolError:  # the request has been answered already
            self.transport.close()
        self._await_head()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unset_unread()
        self._unread = self.loop.call_later(self.timeout_keep_alive, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unset_unread()

    def _await_head(self) -> None:
        """Start the timer for the next head, or for the client to read its last answer."""
        self._unset_timer()
        end = self.transport.abort if self.transport.is_closing() else self._end_unless_in_progress
        self._timer = self.loop.call_later(self.timeout_keep_alive, end)

    def _unset_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _unset_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _end_unless_in_progress(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete:
            # Closing would wait without limit for a client that has not read its answer.
            (self.transport.abort if self.transport.get_write_buffer_size() else self.transport.close)()
