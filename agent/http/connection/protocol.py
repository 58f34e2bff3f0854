"""Uvicorn's HTTP/1.1, with time limits for a head and an answer, and the client's address as a URI's host.

A POST of events that arrives as a whole goes to the application without uvicorn and its HTTP library, whose work for a
request takes several times as long as storing an event (decision 9).
"""

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import cast

import h11
from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from agent.coap.udp import uri_host
from agent.delivery import Answer
from agent.http.application import Application
from agent.http.head import read_whole_post
from agent.http.response import Response, fields_of


class Protocol(H11Protocol):
    """One connection; a head must arrive within `timeout_keep_alive` of the end of the previous request.

    A client that reads nothing of its answer for as long is disconnected.
    """

    _lost: asyncio.Event | None = None

    _outcome: asyncio.Future[Answer] | None = None
    """Of the POST in progress that uvicorn has not parsed."""

    _closes = False
    """Whether the connection ends with the answer to it."""

    def data_received(self, data: bytes) -> None:
        if self._outcome is not None:
            self.conn.receive_data(data)  # its turn comes after the answer
            self.flow.pause_reading()
        elif not self._read_post(data):
            super().data_received(data)

    def _read_post(self, data: bytes) -> bool:
        """Read the bytes where they are a whole POST of events, and no other request is in progress."""
        if self.conn.their_state is not h11.IDLE or self.conn.trailing_data[0] or self.flow.write_paused:
            return False
        assert self.client is not None  # else the connection has been ended
        post = read_whole_post(data, self.client[0])
        outcome = None if post is None else cast("Application", self.app).receive(post)
        if outcome is None:
            return False
        self._unset_keepalive_if_required()
        self._limit("head", None)
        self._outcome = outcome
        self.tasks.add(outcome)  # type: ignore[arg-type]  # a closing server waits for it, or cancels it, as a task
        outcome.add_done_callback(self._answer)
        return True

    def _answer(self, outcome: asyncio.Future[Answer]) -> None:
        self.tasks.discard(outcome)  # see above
        response = cast("Application", self.app).response_to(outcome)
        self._outcome = None
        if self.transport.is_closing():
            return
        closes = self._closes or outcome.cancelled()
        self.transport.write(self._encoded(response, closes=closes))
        if closes:
            self.transport.close()
        else:
            self.flow.resume_reading()
        self._await_head()
        if self.conn.trailing_data[0] and not closes:
            self.handle_events()

    def _encoded(self, response: Response, *, closes: bool) -> bytes:
        status = HTTPStatus(response.code)
        fields = [*self.server_state.default_headers, *fields_of(response)]
        if closes and (b"Connection", b"close") not in fields:
            fields.append((b"Connection", b"close"))
        head = b"".join([b"%b: %b\r\n" % field for field in fields])
        return b"HTTP/1.1 %d %b\r\n%b\r\n%b" % (status, status.phrase.encode(), head, response.body)

    def shutdown(self) -> None:
        if self._outcome is not None:
            self._closes = True
            return
        super().shutdown()
        if self.cycle is not None:  # uvicorn ends the connection after the answer without telling the client
            self.cycle.default_headers = [*self.cycle.default_headers, CLOSE_HEADER]

    async def lost(self) -> None:
        """Wait for the end of the connection; return at once where its TLS handshake was not completed."""
        if self._lost is not None:
            await self._lost.wait()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self._lost = asyncio.Event()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        """By what they limit: the wait for a head, and for a client that reads nothing."""
        try:
            address = transport.get_extra_info("peername")
            self.client = (uri_host(address), address[1])
        except (OSError, TypeError):  # the client has disconnected, or its interface is down
            transport.abort()
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._limit("head", None)
        self._limit("unread", None)
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
        else:
            if self.cycle is not None:  # the application sees the client gone: its answer would be an error in the log
                self.cycle.disconnected = True
                self.cycle.message_event.set()
        self._await_head()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._limit("unread", self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._limit("unread", None)

    def _await_head(self) -> None:
        """Start the timer for the next head, or for the client to read its last answer."""
        self._limit("head", self.transport.abort if self.transport.is_closing() else self._end_unless_in_progress)

    def _limit(self, what: str, end: Callable[[], object] | None) -> None:
        """Start a timer anew with this end; without one, only cancel it."""
        if what in self._timers:
            self._timers.pop(what).cancel()
        if end is not None:
            self._timers[what] = self.loop.call_later(self.timeout_keep_alive, end)

    def _end_unless_in_progress(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete:
            # Closing would wait without limit for a client that has not read its answer.
            (self.transport.abort if self.transport.get_write_buffer_size() else self.transport.close)()
