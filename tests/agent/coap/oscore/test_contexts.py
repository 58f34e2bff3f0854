"""OSCORE contexts: senders are authenticated, captured datagrams refused, retransmissions after a lost ACK answered."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from random import Random

import pytest
from aiocoap import Message  # type: ignore[import-untyped] # aiocoap carries no types
from aiocoap.numbers.codes import Code  # type: ignore[import-untyped]

from agent.coap.message import Option, write_options
from agent.coap.tuning import Tuning
from agent.delivery import Answer, Status
from tests.agent.coap.oscore import protected
from tests.agent.coap.oscore.protected import (
    BAD_OPTION,
    BAD_REQUEST,
    DEVICE,
    OSCORE,
    UNAUTHORIZED,
    ProtectedSensor,
    posted_by_aiocoap,
    sensor_folder,
    troubles,
)
from tests.agent.coap.sensor import BODY, CON, GET, POST, URI_PATH, Sensor, datagram, post
from tests.agent.coap.serving import serving
from tests.agent.coap.slow_path.twin_servers import GENEROUS
from tests.agent.recorder import DURABLE, Recorder

LARGE = b"\xa1\x64data\xa1\x61x\x59\x07\xd0" + bytes(2_000)


offering = partial(protected.offering, required=False)


@pytest.mark.guarantee(2)
async def test_aiocoaps_client_posts_and_is_known_by_its_credential(tmp_path: Path, recorder: Recorder) -> None:
    folder = sensor_folder(tmp_path / "sensor")
    async with serving(recorder, oscore=offering(tmp_path)) as server:
        answers = await asyncio.to_thread(posted_by_aiocoap, folder, server.port, [BODY, LARGE, BODY])
    assert answers == ["2.04 "] * 3
    assert [delivery.body for delivery in recorder.deliveries] == [BODY, LARGE, BODY]
    assert {(delivery.authenticated, delivery.relay) for delivery in recorder.deliveries} == {(DEVICE, False)}


@pytest.mark.guarantee(2)
async def test_a_captured_datagram_is_refused_from_elsewhere_and_answered_again_where_it_came_from(
    tmp_path: Path, sensor: ProtectedSensor, recorder: Recorder
) -> None:
    async with serving(recorder, oscore=offering(tmp_path)) as server:
        with Sensor(server.port) as socket, Sensor(server.port) as stranger:
            await sensor.post(socket)
            raw, _ = sensor.request()
            first = await socket.ask_raw(raw)
            assert await socket.ask_raw(raw) == first
            assert (await stranger.ask(raw)).code == UNAUTHORIZED
        assert server.counters.unserved()["replayed"] == 1
    assert len(recorder.deliveries) == 2


@pytest.mark.guarantee(4)
async def test_once_the_store_has_forgotten_events_a_retransmission_is_not_acked_from_memory(
    tmp_path: Path, sensor: ProtectedSensor, recorder: Recorder
) -> None:
    """It may be that event's: the sensor has to send it again in a new request, and it is then stored again."""
    async with serving(recorder, oscore=offering(tmp_path)) as server, Sensor(server.port) as socket:
        _, acked = await sensor.post(socket)
        recorder.answer = None
        in_progress, reference = sensor.request()
        socket.send(in_progress)
        await recorder.received(2)
        server.forget_answers()
        assert (await socket.ask(acked)).code == UNAUTHORIZED
        socket.send(in_progress)
        await socket.expect_silence()
        recorder.respond()
        answer = await socket.receive_raw()
        assert sensor.read(answer, reference).code == Code.CHANGED
        assert await socket.ask_raw(in_progress) == answer
    assert len(recorder.deliveries) == 2


async def test_where_oscore_is_required_a_plain_request_is_refused(tmp_path: Path, sensor: ProtectedSensor) -> None:
    recorder = Recorder()
    async with serving(recorder, oscore=offering(tmp_path, required=True)) as server:
        with Sensor(server.port) as socket:
            core = datagram(CON, GET, 7, b"", ((URI_PATH, b".well-known"), (URI_PATH, b"core")))
            for plain in (post(5), core):
                assert (await socket.ask(plain)).code == UNAUTHORIZED
            assert (await sensor.post(socket))[0].code == Code.CHANGED
        assert server.counters.unprotected == 2
    assert len(recorder.deliveries) == 1


async def test_a_flood_of_plain_slow_path_requests_leaves_the_budget_of_protected_ones(
    tmp_path: Path, sensor: ProtectedSensor, recorder: Recorder
) -> None:
    async with serving(recorder, Tuning(slow_per_second=2.0), oscore=offering(tmp_path)) as server:
        with Sensor(server.port) as socket, Sensor(server.port) as flooding:
            for mid in range(100):
                flooding.send(datagram(CON, GET, mid, b"", ((URI_PATH, b"e"),)))
            for _ in range(5):
                await sensor.post(socket)
        assert server.counters.shed >= 90
    assert len(recorder.deliveries) == 5


async def test_the_answer_to_what_is_wrong_inside_is_protected(tmp_path: Path, sensor: ProtectedSensor) -> None:
    async with serving(Recorder(), oscore=offering(tmp_path)) as server, Sensor(server.port) as socket:
        await sensor.post(socket)
        for code, path, expected in (
            (Code.GET, "e", Code.METHOD_NOT_ALLOWED),
            (Code.POST, "elsewhere", Code.NOT_FOUND),
        ):
            raw, reference = sensor.request(code=code, path=path)
            assert sensor.read(await socket.ask_raw(raw), reference).code == expected
        message = Message(code=Code.POST, uri_path=("e",), payload=BODY, if_match=[b"x"], echo=sensor.echo)
        raw, reference = sensor.sealed(message)
        assert sensor.read(await socket.ask_raw(raw), reference).code == Code.BAD_OPTION


async def test_an_answer_that_comes_late_is_protected_and_sent_on_its_own(
    tmp_path: Path, sensor: ProtectedSensor, recorder: Recorder
) -> None:
    async with serving(recorder, Tuning(empty_ack_seconds=0.5), oscore=offering(tmp_path)) as server:
        with Sensor(server.port) as socket:
            await sensor.post(socket)
            recorder.answer = None
            raw, reference = sensor.request()
            assert (await socket.ask(raw)).code == 0
            recorder.respond()
            late = await socket.receive_raw()
            assert late[0] & 0x30 == CON
            assert sensor.read(late, reference).code == Code.CHANGED
            socket.send(bytes((0x60, 0)) + late[2:4])


async def test_no_datagram_with_the_option_upsets_the_server(
    tmp_path: Path, sensor: ProtectedSensor, caplog: pytest.LogCaptureFixture, recorder: Recorder
) -> None:
    random = Random(8613)
    async with serving(recorder, GENEROUS, oscore=offering(tmp_path)) as server, Sensor(server.port) as socket:
        await sensor.post(socket)
        good, _ = sensor.request()
        codes = set()
        for mid in range(600):
            options = write_options((Option(OSCORE, random.randbytes(random.randrange(24))),))
            body = random.randbytes(random.randrange(1, 40))
            codes.add((await socket.ask(bytes((0x40, POST)) + mid.to_bytes(2, "big") + options + b"\xff" + body)).code)
        for mid in range(600):
            at, bit = random.randrange(7, len(good)), random.randrange(8)
            socket.send(good[:2] + mid.to_bytes(2, "big") + good[4:at] + bytes((good[at] ^ 1 << bit,)) + good[at + 1 :])
            await socket.receive_all()
    assert codes <= {BAD_REQUEST, UNAUTHORIZED, BAD_OPTION}
    assert [delivery for delivery in recorder.deliveries if delivery.authenticated] == recorder.deliveries[:1]
    assert not troubles(caplog), "seed 8613"


@pytest.mark.guarantee(6)
async def test_a_retransmission_of_what_was_refused_gets_the_refusal_and_a_new_request_is_taken(
    tmp_path: Path, sensor: ProtectedSensor, recorder: Recorder
) -> None:
    """Processing the same datagram again would be a replay (RFC 8613 section 7.4), so Max-Age is omitted."""
    async with serving(recorder, oscore=offering(tmp_path)) as server, Sensor(server.port) as socket:
        await sensor.post(socket)
        recorder.answer = Answer(Status.UNAVAILABLE, reason="full", retry_seconds=7)
        raw, reference = sensor.request()
        first = await socket.ask_raw(raw)
        recorder.answer = DURABLE
        assert await socket.ask_raw(raw) == first
        answer = sensor.read(first, reference)
        assert (answer.code, answer.opt.max_age) == (Code.SERVICE_UNAVAILABLE, 7)
        assert (await sensor.post(socket))[0].code == Code.CHANGED
    assert len(recorder.deliveries) == 3
