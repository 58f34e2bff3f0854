"""A broker implemented by the test, which sends any bytes to its one client."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

SECONDS_MAX = 30.0
PIECE_BYTES = 1 << 16
"""Written at once, so that the broker itself buffers little."""
PUBLISH, PUBACK, SUBACK = 0x30, 0x40, 0x90


def variable(value: int) -> bytes:
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*written, value))


def packet(first: int, body: bytes) -> bytes:
    """Return a packet: a fixed header and its body."""
    return bytes((first,)) + variable(len(body)) + body


def publish(
    topic: bytes, payload: bytes, message_id: int = 0, *, properties: bytes | None = b"", retain: bool = False
) -> bytes:
    """Write a PUBLISH packet, at QoS 1 if it has a packet identifier; without properties for MQTT 3.1.1."""
    identifier = message_id.to_bytes(2, "big") if message_id else b""
    block = b"" if properties is None else variable(len(properties)) + properties
    body = len(topic).to_bytes(2, "big") + topic + identifier + block + payload
    return packet(PUBLISH | (2 if message_id else 0) | retain, body)


class RawBroker:
    """Answers a client until it is connected; records its connections and acknowledgements."""

    def __init__(
        self, version: str, *, refused: bytes = b"", closes_at: bytes = b"", subscribes_late: bool = False
    ) -> None:
        """Create it; `refused` answers other versions, and a subscription to `closes_at` ends the connection.

        One that subscribes late answers a subscription after the client's next message.
        """
        self._five = version == "5"
        self._refused = refused
        self._closes_at = closes_at
        self._subscribes_late = subscribes_late
        self._late = b""
        self.connections = 0
        self.connect = b""
        """The body of the latest CONNECT."""
        self.acknowledged: list[int] = []
        self.states: list[bytes] = []
        """Of the gateway, in order."""
        self.port = 0
        self._writer: asyncio.StreamWriter | None = None
        self._changed = asyncio.Condition()

    async def send(self, data: bytes) -> None:
        """Send these bytes without others between them, on the latest connection, once its client has subscribed."""
        async with asyncio.timeout(SECONDS_MAX), self._changed:
            await self._changed.wait_for(lambda: self._writer is not None)
            assert self._writer is not None
            view = memoryview(data)
            for at in range(0, len(view), PIECE_BYTES):
                self._writer.write(view[at : at + PIECE_BYTES])
                await self._writer.drain()

    async def until_acknowledged(self, message_id: int) -> None:
        await self._until(lambda: message_id in self.acknowledged)

    async def until_connected(self, times: int) -> None:
        await self._until(lambda: self.connections >= times and self._writer is not None)

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(SECONDS_MAX), self._changed:
            await self._changed.wait_for(condition)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await self._answer(*await _read(reader), writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            async with self._changed:
                self._writer = None
        finally:
            writer.close()

    async def _answer(self, first: int, body: bytes, writer: asyncio.StreamWriter) -> None:
        none = b"\0" if self._five else b""
        async with self._changed:
            match first & 0xF0:
                case 0x10:
                    self.connect = body
                    other = body[6] != (5 if self._five else 4)
                    writer.write(packet(0x20, self._refused if other else b"\0\0" + none))
                case 0x80 if self._closes_at and self._closes_at in body:
                    writer.close()
                case 0x80:
                    filters = _count_filters(body[2 + len(none) :])
                    answer = packet(SUBACK, body[:2] + none + bytes(filters))
                    if self._subscribes_late:
                        self._late = answer
                    else:
                        writer.write(answer)
                    self.connections += 1
                    self._writer = writer
                case 0x30:  # the gateway's state, at QoS 1
                    at = 2 + int.from_bytes(body[:2], "big")
                    self.states.append(body[at + 2 + len(none) :])
                    writer.write(self._late + packet(PUBACK, body[at : at + 2]))
                    self._late = b""
                case 0x40:
                    self.acknowledged.append(int.from_bytes(body[:2], "big"))
                case 0xC0:
                    writer.write(packet(0xD0, b""))
            self._changed.notify_all()


def _count_filters(body: bytes) -> int:
    count = 0
    while body:
        body = body[2 + int.from_bytes(body[:2], "big") + 1 :]
        count += 1
    return count


async def _read(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    first = (await reader.readexactly(1))[0]
    length = shift = 0
    while True:
        byte = (await reader.readexactly(1))[0]
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return first, await reader.readexactly(length)


@asynccontextmanager
async def raw_broker(version: str, **settings: Any) -> AsyncIterator[RawBroker]:
    """Run the broker on this machine."""
    broker = RawBroker(version, **settings)
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    broker.port = server.sockets[0].getsockname()[1]
    try:
        yield broker
    finally:
        server.close()
