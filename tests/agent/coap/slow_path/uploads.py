"""Uploads in blocks, by hand and over the wire."""

from __future__ import annotations

from itertools import count

from agent.coap.message import uint
from agent.coap.slow_path.blocks import Block
from tests.agent.coap.sensor import BLOCK1, Response, Sensor, post

BODY = bytes(range(150))
SIZE = 64


def blocks(body: bytes = BODY, run: int = 0) -> list[Block]:
    """Split a body; each run has its own datagrams."""
    starts = range(0, len(body), SIZE)
    return [
        Block(start, SIZE, start + SIZE < len(body), body[start : start + SIZE], f"{run} {start}".encode())
        for start in starts
    ]


class Uploader:
    """A sensor that sends in blocks, and records what it sent."""

    def __init__(self, sensor: Sensor) -> None:
        self._sensor = sensor
        self._mids = count(1)
        self.sent: list[bytes] = []

    async def block(self, number: int, more: bool, payload: bytes, *options: tuple[int, bytes]) -> Response:
        option = BLOCK1, uint(number << 4 | more << 3 | 2)
        self.sent.append(post(mid=next(self._mids), payload=payload, options=(option, *options)))
        return await self._sensor.ask(self.sent[-1])

    async def upload(self, body: bytes) -> list[int]:
        starts = range(0, len(body), SIZE)
        return [(await self.block(at // SIZE, at + SIZE < len(body), body[at : at + SIZE])).code for at in starts]
