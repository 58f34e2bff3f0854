"""A TCP link that parses Kafka's frames: it can delay, drop or fake answers, and drop requests."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum

from tests.agent.forward.links import TcpLink

LENGTH_BYTES = 4
CORRELATION = slice(0, 4)
"""Where an answer contains the correlation id of its request."""
ERROR = slice(8, 10)
"""Where the answer to an EndTxn request (version 0 to 2) contains the error: after the correlation id and a time."""
COMMITS = 1
"""The last byte of such a request, which otherwise aborts."""
HELD_SECONDS_MAX = 120.0
"""A test that does not release an answer ends nevertheless."""


class Request(IntEnum):
    """Kinds of requests, by Kafka's own numbers (`api_key`)."""

    PRODUCE = 0
    METADATA = 3
    END_TXN = 26


class AnswerLink(TcpLink):
    """Carry connections to one broker, frame by frame."""

    def __init__(self, port: int, target: int) -> None:
        super().__init__(port, target)
        self._open = threading.Event()
        self._open.set()
        self._held: Request | None = None
        self._lost: Request | None = None
        self._lost_request: Request | None = None
        self._fakes_commit = False
        self._faked: bytes | None = None
        """The correlation id of the commit that is faked, and awaits its answer."""
        self._delays_commit = False
        self._delayed: bytes | None = None
        """The correlation id of the commit that is held back, or was."""
        self._delivered = threading.Event()
        self._answered = threading.Event()
        """Whether it is answered; until then no connection is closed."""
        self._answered.set()

    def __exit__(self, *_: object) -> None:
        for one in (self._open, self._delivered, self._answered):
            one.set()
        super().__exit__()

    @property
    def is_armed(self) -> bool:
        """Whether a frame that is to be dropped has not come yet."""
        return self._lost is not None or self._lost_request is not None

    def hold(self, kind: Request) -> None:
        """Hold back all answers of a kind; those behind them on the same connection wait, too."""
        self._open.clear()
        self._held = kind

    def release(self) -> None:
        """Forward the delayed answers, to connections that are still open, and all later ones."""
        self._held = None
        self._open.set()

    def lose(self, kind: Request) -> None:
        """Drop the next answer of a kind together with its connection."""
        self._lost = kind

    def lose_request(self, kind: Request) -> None:
        """Drop the next request of a kind together with its connection; other connections continue."""
        self._lost_request = kind

    def fake_commit(self) -> None:
        """Answer the next commit as a success of which the coordinator does not learn.

        So do brokers answer that end a transaction for the coordinator alone.
        """
        self._fakes_commit = True

    def delay_commit(self) -> None:
        """Hold back the next commit until `deliver_commit`, even if the client has closed its connection by then."""
        self._delivered.clear()
        self._answered.clear()
        self._delays_commit = True

    def deliver_commit(self) -> None:
        """Forward the commit that is held back, and wait until the broker has answered it."""
        self._delivered.set()
        assert self._answered.wait(HELD_SECONDS_MAX)

    def _begin(self, near: socket.socket, far: socket.socket) -> None:
        asked: dict[bytes, int] = {}
        threading.Thread(target=self._carry, args=(near, far, self._pass_request, asked), daemon=True).start()
        threading.Thread(target=self._carry, args=(far, near, self._pass_answer, asked), daemon=True).start()

    def _carry(
        self,
        source: socket.socket,
        sink: socket.socket,
        pass_on: Callable[[bytes, dict[bytes, int]], bytes | None],
        asked: dict[bytes, int],
    ) -> None:
        """Forward frames in one direction until either end is closed, or a frame is to be dropped."""
        with suppress(OSError), source.makefile("rb") as frames:
            while len(length := frames.read(LENGTH_BYTES)) == LENGTH_BYTES:
                frame = pass_on(frames.read(int.from_bytes(length)), asked)
                if frame is None:
                    break
                sink.sendall(length + frame)
        self._answered.wait(HELD_SECONDS_MAX)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _pass_request(self, frame: bytes, asked: dict[bytes, int]) -> bytes | None:
        kind = asked[frame[4:8]] = int.from_bytes(frame[:2])
        if kind == self._lost_request:
            self._lost_request = None
            return None
        if kind == Request.END_TXN and self._delays_commit and frame[-1] == COMMITS:
            self._delays_commit, self._delayed = False, frame[4:8]
            self._delivered.wait(HELD_SECONDS_MAX)
            return frame
        if kind == Request.END_TXN and self._fakes_commit and frame[-1] == COMMITS:
            self._fakes_commit, self._faked = False, frame[4:8]
            return _of_nobody(frame)
        return frame

    def _pass_answer(self, frame: bytes, asked: dict[bytes, int]) -> bytes | None:
        """Return the frame to forward; None where the answer is dropped."""
        kind = asked.pop(frame[CORRELATION])
        if kind == self._lost:
            self._lost = None
            return None
        if kind == Request.END_TXN and frame[CORRELATION] == self._delayed and self._delivered.is_set():
            self._answered.set()
        if kind == self._held:
            self._open.wait(HELD_SECONDS_MAX)
        if kind == Request.END_TXN and frame[CORRELATION] == self._faked:
            return frame[: ERROR.start] + bytes(2) + frame[ERROR.stop :]
        return frame


def _of_nobody(frame: bytes) -> bytes:
    """Return an EndTxn request with an unassigned producer id: the coordinator refuses it, and changes nothing."""
    return frame[:-11] + (-1).to_bytes(8, signed=True) + frame[-3:]
