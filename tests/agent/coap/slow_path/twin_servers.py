"""Two servers in one loop that receive the same datagrams; their answers and log lines are recorded."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self, TypeVar

from agent.coap.server import CoapServer
from agent.coap.tuning import Tuning
from agent.config.settings import CoapSettings
from agent.delivery import Answer, Delivery, Respond, Status
from tests.agent.coap.sensor import CON, EMPTY, RST, Response, Sensor, datagram
from tests.agent.recorder import DURABLE

GENEROUS = Tuning(slow_per_second=1e9, protected_per_second=1e9)
_LOOP_TURNS = 20
"""More than aiocoap needs between a request and its answer."""

T = TypeVar("T")
Exchanged = tuple[int, int, bytes, bytes]


def by_media(delivery: Delivery, respond: Respond) -> None:
    """Accept bodies of known formats."""
    respond(DURABLE if delivery.media is not None else Answer(Status.UNKNOWN_FORMAT))


class TwinServers(logging.Handler):
    """The fast path, and aiocoap behind the same sanitizer; `troubles` must stay empty."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.troubles: list[str] = []
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()

    def emit(self, record: logging.LogRecord) -> None:
        self.troubles.append(record.getMessage())

    def __enter__(self) -> Self:
        logging.getLogger().addHandler(self)
        self._runner.__enter__()
        settings = CoapSettings(bind="[::1]:0")
        self.fast = self.run(self._stack.enter_async_context(CoapServer(settings, by_media, tuning=GENEROUS)))
        slow = CoapServer(settings, by_media, tuning=GENEROUS, fast=False)
        self.aiocoap = self.run(self._stack.enter_async_context(slow))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.run(self._stack.aclose())
        self._runner.__exit__(kind, error, trace)
        logging.getLogger().removeHandler(self)

    def run(self, awaitable: Awaitable[T]) -> T:
        async def wait() -> T:
            return await awaitable

        return self._runner.run(wait())

    def exchange(self, port: int, raw: bytes) -> list[Exchanged]:
        """Send a datagram from a fresh port; return type, code, token, options and payload of all answers."""
        return self.run(_exchanged(port, raw))


async def _exchanged(port: int, raw: bytes) -> list[Exchanged]:
    with Sensor(port) as sensor:
        sensor.send(raw)
        responses = await _until_pong(sensor, 1, raw)
        for _ in range(_LOOP_TURNS):
            await asyncio.sleep(0)
        responses += await _until_pong(sensor, 2, raw)
    return [(message.kind, message.code, message.token, message.rest) for message in responses]


async def _until_pong(sensor: Sensor, turn: int, raw: bytes) -> list[Response]:
    mid = (int.from_bytes(raw[2:4], "big") + turn) & 0xFFFF
    pong = Response(RST, EMPTY, mid, b"", b"")
    responses: list[Response] = []
    sensor.send(datagram(CON, EMPTY, mid, b""))
    while (message := await sensor.receive()) != pong:
        responses.append(message)
    return responses
