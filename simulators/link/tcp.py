"""Emulation of a bad TCP line: a proxy in front of one target that delays, stalls and resets connections."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from random import Random
from typing import Self

from simulators.link.faults import LinkFault, LinkProfile, Packet, apply_all

PIECE_BYTES_MAX = 16_384
STALL_SECONDS = 0.1
"""How often a stalled piece is tried again: TCP loses nothing, it waits."""


class StreamLink:
    """Forwards connections to one target; the faults of the n-th connection depend on the seed, outages on the time.

    A reset happens before a piece of an answer, when the request has already arrived.
    """

    def __init__(self, target: tuple[str, int], profile: LinkProfile, resets: float, seed: int, port: int = 0) -> None:
        self.connections = 0
        self.resets = 0
        self._target = target
        self._profile = profile
        self._resets = resets
        self._seed = seed
        self._port = port
        self._server: asyncio.Server | None = None
        self._carrying: set[asyncio.Task[None]] = set()
        self._begin = 0.0

    async def __aenter__(self) -> Self:
        self._begin = asyncio.get_running_loop().time()
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._carrying:
            task.cancel()
        await asyncio.gather(*self._carrying, return_exceptions=True)

    @property
    def address(self) -> tuple[str, int]:
        """The address that clients connect to."""
        if self._server is None:
            raise RuntimeError("the link is not open")
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    @property
    def open_connections(self) -> int:
        """How many connections are open."""
        return len(self._carrying)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.get_running_loop().create_task(
            self._carry(reader, writer, self.connections), name=f"line {self.connections}"
        )
        self._carrying.add(task)
        task.add_done_callback(self._carrying.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        """Forward one connection until either side or a fault ends it."""
        of = f"{self._seed} connection {number}"
        random = Random(f"{of} resets")
        try:
            back_reader, back_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        to_target = self._profile.requests(Random(f"{of} requests"))
        to_client = self._profile.answers(Random(f"{of} answers"))
        requests = self._pump(reader, back_writer, to_target, lambda: False)
        answers = self._pump(back_reader, writer, to_client, lambda: random.random() < self._resets)
        pumps = [asyncio.ensure_future(requests), asyncio.ensure_future(answers)]
        try:
            # A client may half-close and still read: only the end of the answers ends the connection.
            await pumps[1]
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for end in (writer, back_writer):
                end.close()
            await asyncio.gather(writer.wait_closed(), back_writer.wait_closed(), return_exceptions=True)

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        faults: Sequence[LinkFault],
        is_reset: Callable[[], bool],
    ) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):  # as ENOTCONN, once an end has refused what came after its close
            while piece := await reader.read(PIECE_BYTES_MAX):
                if is_reset():
                    self.resets += 1
                    writer.transport.abort()
                    return
                while not (packets := apply_all(faults, Packet(piece, now=loop.time() - self._begin))):  # noqa: ASYNC110 (no signal)
                    await asyncio.sleep(STALL_SECONDS)
                await asyncio.sleep(packets[0].seconds)
                writer.write(piece)
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
