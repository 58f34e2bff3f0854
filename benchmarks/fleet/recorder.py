"""Records the requests that a client sends to a broker, so that many simulated clients can send the same ones."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

LENGTH_BYTES = 4
NAMES = {
    0: "Produce",
    1: "Fetch",
    2: "ListOffsets",
    3: "Metadata",
    9: "OffsetFetch",
    10: "FindCoordinator",
    18: "ApiVersions",
    22: "InitProducerId",
}
"""Of Kafka's API keys, those of the agent's clients."""
START_SECONDS_MAX = 10


@dataclass(slots=True)
class Wire:
    """One connection: the bytes in both directions."""

    sent_bytes: int = 0
    received_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Recorded:
    """What was sent between two marks."""

    connections: int
    requests: Sequence[bytes]
    sent_bytes: int
    received_bytes: int

    @property
    def names(self) -> Sequence[str]:
        """Return the names of the requests."""
        return [NAMES.get(int.from_bytes(one[4:6], "big"), "other") for one in self.requests]


class Recorder:
    """A proxy in front of a broker's listener, which has to advertise the proxy's port."""

    def __init__(self, port: int, target: int) -> None:
        self._wires: list[Wire] = []
        self._order: list[bytes] = []
        self._from = (0, 0, 0, 0)
        self.port = port
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="recorder", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        serving = asyncio.start_server(self._carry, "127.0.0.1", self.port)
        asyncio.run_coroutine_threadsafe(serving, self._loop).result(START_SECONDS_MAX)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop).result(START_SECONDS_MAX)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def cut(self) -> Recorded:
        """Return what was sent since the last call."""
        sent, received = (sum(getattr(one, name) for one in self._wires) for name in ("sent_bytes", "received_bytes"))
        now = len(self._wires), len(self._order), sent, received
        before, self._from = self._from, now
        requests = self._order[before[1] : now[1]]
        return Recorded(now[0] - before[0], requests, sent - before[2], received - before[3])

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = Wire()
        self._wires.append(wire)
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        with suppress(asyncio.CancelledError):
            await asyncio.gather(self._requests(wire, reader, far_writer), self._answers(wire, far_reader, writer))
        writer.close()
        far_writer.close()

    async def _requests(self, wire: Wire, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                length = await reader.readexactly(LENGTH_BYTES)
                request = length + await reader.readexactly(int.from_bytes(length, "big"))
                self._order.append(request)
                wire.sent_bytes += len(request)
                writer.write(request)
        writer.close()

    async def _answers(self, wire: Wire, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while piece := await reader.read(65_536):
                wire.received_bytes += len(piece)
                writer.write(piece)


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
