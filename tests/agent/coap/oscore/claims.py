"""Requests that claim to be protected, and their answers."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from agent.coap.oscore.credentials import Credential
from agent.coap.oscore.serving import Freshness, OscoreServing
from tests.agent.coap.oscore.protected import CREDENTIAL
from tests.agent.coap.sensor import CON, POST, Sensor, datagram

UNAUTHORIZED, BAD_REQUEST, BAD_OPTION, INCOMPLETE, INTERNAL_ERROR, UNAVAILABLE = 0x81, 0x80, 0x82, 0x88, 0xA0, 0xA3
OSCORE = 9
LOOP_TURNS = 20
"""More than aiocoap needs between a request and its answer."""

both = pytest.mark.parametrize("required", [True, False], ids=["required", "offered"])


def offering(
    folder: Path, *credentials: Credential, required: bool = True, freshness: Freshness = Freshness.START
) -> OscoreServing:
    return OscoreServing(credentials or (CREDENTIAL,), folder / "numbers", required, freshness)


def claiming(mid: int, option: bytes, payload: bytes = bytes(24), code: int = POST, kind: int = CON) -> bytes:
    """Build a request that claims to be protected."""
    return datagram(kind, code, mid, mid.to_bytes(2, "big"), ((OSCORE, option),), payload)


def troubles(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


async def message(socket: Sensor, raw: bytes) -> set[int]:
    """Send, and return the codes of all answers; some datagrams have none."""
    socket.send(raw)
    codes = {response.code for response in await socket.receive_all()}
    for _ in range(LOOP_TURNS):
        await asyncio.sleep(0)
    return codes | {response.code for response in await socket.receive_all()}
