"""Encrypted content of known devices: messages of any kind, and parts of bodies, which never join those of others."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from aiocoap import Message  # type: ignore[import-untyped] # aiocoap carries no types
from aiocoap.numbers.codes import Code  # type: ignore[import-untyped]
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent.coap.message import Option, write_options
from agent.coap.oscore.credentials import Credential
from tests.agent.coap.oscore.claims import INCOMPLETE, INTERNAL_ERROR, UNAUTHORIZED, both, message, offering, troubles
from tests.agent.coap.oscore.protected import CREDENTIAL, DEVICE, ProtectedSensor, sensor_folder
from tests.agent.coap.recorder import Recorder
from tests.agent.coap.sensor import BLOCK1, BODY, Sensor, post
from tests.agent.coap.serving import serving
from tests.agent.coap.slow_path.twin_servers import GENEROUS

INNER_OPTIONS = (1, 3, 4, 6, 7, 8, 9, 11, 12, 15, 17, 23, 27, 28, 35, 39, 60, 252, 258, 292, 2_053)


def block(number: int, more: bool) -> bytes:
    return bytes((number << 4 | more << 3,))  # of 16 bytes


@pytest.mark.guarantee(6)
@both
async def test_plain_blocks_never_join_protected_ones(
    tmp_path: Path, forgetful: ProtectedSensor, caplog: pytest.LogCaptureFixture, required: bool
) -> None:
    recorder, sensor = Recorder(), forgetful
    other = Credential("urn:other", bytes(range(16, 32)), b"salt", b"\x02")
    second = ProtectedSensor(sensor_folder(tmp_path / "second", other), keeps_echo=False)
    offer = offering(tmp_path, CREDENTIAL, other, required=required)
    body = BODY.ljust(20, b"\x00")

    def plain(mid: int, number: int, more: bool) -> bytes:
        part = body[16 * number : 16 * number + 16]
        return post(mid, payload=part, options=((BLOCK1, block(number, more)),))

    async with serving(recorder, GENEROUS, oscore=offer) as server, Sensor(server.port) as socket:
        await sensor.post(socket)
        await second.post(socket)
        raw, reference = sensor.block(body, 0, more=True)
        assert sensor.read(await socket.ask_raw(raw), reference).code == Code.CONTINUE
        assert (await socket.ask(plain(500, 1, more=False))).code == (UNAUTHORIZED if required else INCOMPLETE)
        raw, reference = second.block(body, 1, more=False)
        assert second.read(await socket.ask_raw(raw), reference).code == Code.REQUEST_ENTITY_INCOMPLETE
        raw, reference = sensor.block(body, 1, more=False)
        assert sensor.read(await socket.ask_raw(raw), reference).code == Code.CHANGED
    assert [delivery.body for delivery in recorder.deliveries[2:]] == [body]
    assert recorder.deliveries[2].authenticated == DEVICE
    assert not troubles(caplog)


class Lines(logging.Handler):
    """Records warnings and errors."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


class Inside(ProtectedSensor):
    """Encrypts any content that the test sets."""

    def holding(self, plaintext: bytes) -> tuple[bytes, object]:
        split = self.context._split_message

        def replaced(message: Message, request_id: Any) -> tuple[Message, bytes]:
            return split(message, request_id)[0], plaintext

        self.context._split_message = replaced
        try:
            return self.sealed(Message(code=Code.POST))
        finally:
            self.context._split_message = split


options = st.lists(st.tuples(st.sampled_from(INNER_OPTIONS), st.binary(max_size=20)), max_size=6).map(
    lambda each: write_options(tuple(Option(*one) for one in sorted(each)))
)
plaintexts = st.binary(min_size=1, max_size=40) | st.tuples(
    st.sampled_from((0, 1, 2, 3, 5, 7, 31, 0x44, 0x80, 0xE1)), options, st.sampled_from((b"", b"\xff", b"\xff\xa0"))
).map(lambda parts: bytes((parts[0],)) + parts[1] + parts[2])


@pytest.mark.guarantee(6)
@settings(max_examples=20, deadline=None)
@given(inside=st.lists(plaintexts, min_size=10, max_size=40))
@example(inside=[b"\x02\xbb\xff", b"\x02\xb1\xff\xff", b"\x02\xff", b"\x02", b"\x00", b"\x44", b"\xff", b"\x02\xf0"])
def test_whatever_a_device_encrypts_is_answered_and_troubles_nobody(
    tmp_path_factory: pytest.TempPathFactory, inside: list[bytes]
) -> None:
    folder = tmp_path_factory.mktemp("inside")
    log = Lines()

    async def play() -> None:
        sensor, recorder = Inside(sensor_folder(folder / "sensor"), keeps_echo=False), Recorder()
        async with serving(recorder, GENEROUS, oscore=offering(folder)) as server, Sensor(server.port) as socket:
            await sensor.post(socket)
            for plaintext in inside:
                raw, _ = sensor.holding(plaintext)
                assert INTERNAL_ERROR not in await message(socket, raw)
            assert (await sensor.post(socket))[0].code == Code.CHANGED

    logging.getLogger().addHandler(log)
    try:
        asyncio.run(play())
    finally:
        logging.getLogger().removeHandler(log)
    assert log.lines == []
