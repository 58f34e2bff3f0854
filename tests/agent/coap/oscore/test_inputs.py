"""Invalid input under OSCORE: nothing of it is accepted, and plain traffic continues."""

import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from aiocoap import Message, oscore  # type: ignore[import-untyped] # aiocoap carries no types
from aiocoap.numbers.codes import Code  # type: ignore[import-untyped]
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agent.coap.message import Option, write_options
from agent.coap.oscore.credentials import Credential
from tests.agent.coap.oscore.protected import (
    BAD_OPTION,
    BAD_REQUEST,
    CREDENTIAL,
    DEVICE,
    INCOMPLETE,
    INTERNAL_ERROR,
    UNAUTHORIZED,
    UNAVAILABLE,
    ProtectedSensor,
    both,
    claiming,
    offering,
    sensor_folder,
    troubles,
)
from tests.agent.coap.sensor import BLOCK1, BODY, CHANGED, Sensor, post
from tests.agent.coap.serving import GENEROUS, serving
from tests.agent.recorder import Recorder

KID = CREDENTIAL.sensor_id
WITH_KID = 0x08


OTHER = Credential("urn:other", bytes(range(16, 32)), b"salt", b"\x02")
CODES = (1, 2, 3, 4, 5, 6, 7, 8, 31)
TRIES = 300
"""More than a request has bits and lengths, and more than there are codes and lengths of a number."""


def cut(sound: Message, number: int, _: Random) -> bytes:
    return claiming(number, sound.opt.oscore, sound.payload[: number % len(sound.payload)])


def flipped(sound: Message, number: int, _: Random) -> bytes:
    both = bytearray(sound.opt.oscore + sound.payload)
    both[number // 8 % len(both)] ^= 1 << number % 8
    return claiming(number, bytes(both[: len(sound.opt.oscore)]), bytes(both[len(sound.opt.oscore) :]))


def numbered(_: Message, number: int, __: Random) -> bytes:
    """Claim a number of any length under any code."""
    piv_bytes = number % 8
    option = bytes((WITH_KID | piv_bytes,)) + b"\xff" * piv_bytes + KID
    return claiming(number, option, code=CODES[number // 8 % len(CODES)])


def as_another_device(sound: Message, number: int, _: Random) -> bytes:
    piv = oscore.verify_start(sound)[oscore.COSE_PIV]
    return claiming(number, bytes((WITH_KID | len(piv),)) + piv + OTHER.sensor_id, sound.payload)


def anything(_: Message, number: int, chance: Random) -> bytes:
    return claiming(number, chance.randbytes(chance.randrange(24)), chance.randbytes(chance.randrange(1, 40)))


@pytest.mark.guarantee(6)
@both
@pytest.mark.parametrize(
    ("make", "codes"),
    [
        (cut, {BAD_REQUEST}),
        (flipped, {BAD_REQUEST, BAD_OPTION, UNAUTHORIZED}),
        (numbered, {BAD_REQUEST, BAD_OPTION}),
        (as_another_device, {BAD_REQUEST}),
        (anything, {BAD_REQUEST, BAD_OPTION, UNAUTHORIZED}),
    ],
)
async def test_what_only_claims_to_be_protected_is_refused_and_the_sound_request_is_taken_after_it(
    tmp_path: Path,
    forgetful: ProtectedSensor,
    caplog: pytest.LogCaptureFixture,
    required: bool,
    recorder: Recorder,
    make: Callable[[Message, int, Random], bytes],
    codes: set[int],
) -> None:
    chance, offer = Random(8613), offering(tmp_path, CREDENTIAL, OTHER, required=required)
    async with serving(recorder, GENEROUS, oscore=offer) as server, Sensor(server.port) as socket:
        await forgetful.post(socket)
        raw, reference = forgetful.request()
        sound = Message.decode(raw)
        for number in range(TRIES):
            assert (await socket.ask(make(sound, number, chance))).code in codes, number
        await socket.expect_silence()
        assert forgetful.read(await socket.ask_raw(raw), reference).code == Code.CHANGED
        elsewhere = Credential(DEVICE, bytes(range(32, 48)), b"salt", b"\x01")
        foreign = ProtectedSensor(sensor_folder(tmp_path / "foreign", elsewhere))
        assert (await socket.ask(foreign.request()[0])).code in (BAD_REQUEST, UNAUTHORIZED)
        assert sum(server.counters.unserved().values()) == TRIES + 1
    assert [delivery.authenticated for delivery in recorder.deliveries] == [DEVICE] * 2
    assert not troubles(caplog)


@pytest.mark.guarantee(2)
@settings(max_examples=12)
@given(order=st.lists(st.integers(0, 69), min_size=20, max_size=90))
async def test_requests_in_any_order_are_each_taken_once_as_far_as_the_window_reaches(
    tmp_path_factory: pytest.TempPathFactory, order: list[int]
) -> None:
    """A model of the window: 32 numbers up to the highest that was accepted (RFC 8613 section 7.4)."""
    folder = tmp_path_factory.mktemp("order")
    sensor, recorder = ProtectedSensor(sensor_folder(folder / "sensor"), keeps_echo=False), Recorder()
    async with serving(recorder, GENEROUS, oscore=offering(folder)) as server, Sensor(server.port) as first:
        await sensor.post(first)
        written = [sensor.request(BODY + bytes((number,)))[0] for number in range(70)]
        taken: set[int] = set()
        for place, number in enumerate(order):
            source = f"127.0.1.{place}"  # a new address each time: no request is a retransmission
            with Sensor(server.port, "127.0.0.1", source=source) as stranger:
                code = (await stranger.ask(written[number])).code
            fits = number not in taken and number > max(taken, default=0) - 32
            assert (code == CHANGED) is fits
            taken |= {number} if fits else set()
        assert Counter(delivery.body for delivery in recorder.deliveries[1:]) == Counter(
            BODY + bytes((number,)) for number in taken
        )


@pytest.mark.guarantee(6)
async def test_unknown_senders_cost_no_memory_and_no_line_in_the_log(
    tmp_path: Path, forgetful: ProtectedSensor, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.coap.slow_path.bridge.PROTECTED_ANSWERS_MAX", 64)
    recorder, senders = Recorder(), 1_000
    async with serving(recorder, GENEROUS, oscore=offering(tmp_path)) as server:
        with Sensor(server.port) as stranger, Sensor(server.port) as socket:

            async def flood(numbers: range) -> None:
                for number in numbers:
                    option = bytes((WITH_KID | 1, number & 0xFF)) + number.to_bytes(6, "big")
                    assert (await stranger.ask(claiming(number, option))).code == UNAUTHORIZED

            await flood(range(senders // 2))  # the response cache is full
            tracemalloc.start()
            try:
                before, _ = tracemalloc.get_traced_memory()
                await flood(range(senders // 2, senders))
                after, _ = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert after - before < 300_000
            assert (await forgetful.post(socket))[0].code == Code.CHANGED
        assert server.counters.unserved()["unknown-context"] == senders
    assert len(recorder.deliveries) == 1
    assert not troubles(caplog)


async def test_without_numbers_requests_are_refused_in_the_plain_and_the_log_says_so_once(
    tmp_path: Path, forgetful: ProtectedSensor, caplog: pytest.LogCaptureFixture, recorder: Recorder
) -> None:
    (tmp_path / "numbers").write_text("in the way")
    async with serving(recorder, GENEROUS, oscore=offering(tmp_path)) as server, Sensor(server.port) as socket:
        for _ in range(50):
            assert (await socket.ask(forgetful.request()[0])).code == UNAVAILABLE
        (line,) = troubles(caplog)
        assert "oscore=unanswered" in line
        (tmp_path / "numbers").unlink()
        assert (await forgetful.post(socket))[0].code == Code.CHANGED
    assert len(recorder.deliveries) == 1


INNER_OPTIONS = (1, 3, 4, 6, 7, 8, 9, 11, 12, 15, 17, 23, 27, 28, 35, 39, 60, 252, 258, 292, 2_053)


def block(number: int, more: bool) -> bytes:
    return bytes((number << 4 | more << 3,))  # of 16 bytes


@pytest.mark.guarantee(6)
@both
async def test_plain_blocks_never_join_protected_ones(
    tmp_path: Path, forgetful: ProtectedSensor, caplog: pytest.LogCaptureFixture, required: bool
) -> None:
    recorder, sensor = Recorder(), forgetful
    second = ProtectedSensor(sensor_folder(tmp_path / "second", OTHER), keeps_echo=False)
    offer = offering(tmp_path, CREDENTIAL, OTHER, required=required)
    body = BODY.ljust(20, b"\x00")

    def plain(mid: int, number: int, more: bool) -> bytes:
        part = body[16 * number : 16 * number + 16]
        return post(mid, payload=part, options=((BLOCK1, block(number, more)),))

    async with serving(recorder, GENEROUS, oscore=offer) as server, Sensor(server.port) as socket:
        await sensor.post(socket)
        await second.post(socket)
        assert (await sensor.answer(socket, sensor.block(body, 0, more=True))).code == Code.CONTINUE
        assert (await socket.ask(plain(500, 1, more=False))).code == (UNAUTHORIZED if required else INCOMPLETE)
        assert (await second.answer(socket, second.block(body, 1, more=False))).code == Code.REQUEST_ENTITY_INCOMPLETE
        assert (await sensor.answer(socket, sensor.block(body, 1, more=False))).code == Code.CHANGED
    assert [delivery.body for delivery in recorder.deliveries[2:]] == [body]
    assert recorder.deliveries[2].authenticated == DEVICE
    assert not troubles(caplog)


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
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(inside=st.lists(plaintexts, min_size=10, max_size=40))
@example(inside=[b"\x02\xbb\xff", b"\x02\xb1\xff\xff", b"\x02\xff", b"\x02", b"\x00", b"\x44", b"\xff", b"\x02\xf0"])
async def test_whatever_a_device_encrypts_is_answered_and_troubles_nobody(
    tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture, inside: list[bytes]
) -> None:
    folder = tmp_path_factory.mktemp("inside")
    sensor, recorder = Inside(sensor_folder(folder / "sensor"), keeps_echo=False), Recorder()
    async with serving(recorder, GENEROUS, oscore=offering(folder)) as server, Sensor(server.port) as socket:
        await sensor.post(socket)
        for plaintext in inside:
            raw, _ = sensor.holding(plaintext)
            assert INTERNAL_ERROR not in {answer.code for answer in await socket.ask_all(raw)}
        assert (await sensor.post(socket))[0].code == Code.CHANGED
    assert not troubles(caplog)
