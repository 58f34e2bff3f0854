"""Records the requests that clients send to a broker: to count their bytes."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from typing import Final, Self, TypeVar

LENGTH_BYTES: Final = 4
SERVE_SECONDS_MAX: Final = 10
"""To begin or end to serve."""
SEGMENT_BYTES: Final = 1_448
"""What a TCP segment carries over Ethernet, with timestamps (RFC 7323)."""
HEAD_BYTES: Final = 52
"""Of IPv4 and TCP with timestamps, for each segment and for each ack of one."""
NAMES: Final = {
    0: "Produce",
    1: "Fetch",
    2: "ListOffsets",
    3: "Metadata",
    9: "OffsetFetch",
    10: "FindCoordinator",
    18: "ApiVersions",
    22: "InitProducerId",
    24: "AddPartitionsToTxn",
    26: "EndTxn",
}
"""Of Kafka's API keys, those of the agent's clients."""
OTHER: Final = "other"

T = TypeVar("T")


Traffic = Counter[str]
"""What was sent for requests of one kind, in both directions: `requests`, `payload bytes` and `segments`."""


def wire_bytes(traffic: Traffic) -> int:
    """Return the bytes with the heads of TCP and IP, if each segment is acknowledged by one of its own."""
    return traffic["payload bytes"] + 2 * HEAD_BYTES * traffic["segments"]


class Recorder:
    """A proxy in front of a broker's listener, which has to advertise the proxy's port.

    Without `is_kafka` all traffic is of one kind, and each piece that is read counts as a request.
    """

    def __init__(self, port: int, target: int, *, is_kafka: bool = True) -> None:
        self.port = port
        self._target = target
        self._is_kafka = is_kafka
        self._traffic: dict[str, Traffic] = {}
        self._server: asyncio.Server | None = None
        self._carrying: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._carrying:
            task.cancel()
        await asyncio.gather(*self._carrying, return_exceptions=True)

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return sum(not task.done() for task in self._carrying)

    def cut(self) -> Mapping[str, Traffic]:
        """Return what was sent since the last call, by the kind of request."""
        traffic, self._traffic = self._traffic, {}
        return traffic

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._carrying.add(task)
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        pending: deque[str] = deque()  # Kafka answers the requests of a connection in their order
        with suppress(asyncio.CancelledError):
            await asyncio.gather(
                self._pump(reader, far_writer, pending, is_request=True),
                self._pump(far_reader, writer, pending, is_request=False),
            )
        for end in (writer, far_writer):
            end.close()
            with suppress(ConnectionError):
                await end.wait_closed()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pending: deque[str], *, is_request: bool
    ) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while piece := await self._read(reader):
                self._count(piece, pending, is_request=is_request)
                writer.write(piece)
        writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> bytes:
        if not self._is_kafka:
            return await reader.read(65_536)
        length = await reader.readexactly(LENGTH_BYTES)
        return length + await reader.readexactly(int.from_bytes(length, "big"))

    def _count(self, piece: bytes, pending: deque[str], *, is_request: bool) -> None:
        if not self._is_kafka:
            name = OTHER
        elif is_request:
            name = _name(piece)
            pending.append(name)
        else:
            name = pending.popleft() if pending else OTHER
        traffic = self._traffic.setdefault(name, Traffic())
        traffic["segments"] += -(-len(piece) // SEGMENT_BYTES)
        traffic["payload bytes"] += len(piece)
        traffic["requests"] += is_request


@contextmanager
def in_thread(served: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Serve in an event loop of its own for the block."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="served", daemon=True)
    thread.start()
    opened = asyncio.run_coroutine_threadsafe(served.__aenter__(), loop).result(SERVE_SECONDS_MAX)
    try:
        yield opened
    finally:
        asyncio.run_coroutine_threadsafe(served.__aexit__(None, None, None), loop).result(SERVE_SECONDS_MAX)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _name(request: bytes) -> str:
    return NAMES.get(int.from_bytes(request[4:6], "big"), OTHER)
