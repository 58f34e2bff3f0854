"""OSCORE contexts: senders are authenticated, captured datagrams refused, retransmissions after a lost ACK answered.

Of many requests at once, and on a slow disk, the event loop's other tasks run in between.
"""

import asyncio
import os
import socket
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiocoap import Message  # type: ignore[import-untyped] # aiocoap carries no types
from aiocoap.numbers.codes import Code  # type: ignore[import-untyped]

from agent.coap.oscore import contexts
from agent.coap.oscore.contexts import SecurityContext
from agent.coap.oscore.credentials import create_credential
from agent.coap.slow_path.blocks import ASSEMBLIES_MAX
from agent.coap.tuning import Tuning
from agent.delivery import Answer, Status
from agent.pace import TURN_SECONDS_MAX
from simulators.services import ports
from simulators.services.process import Process
from tests.agent.coap.oscore import protected
from tests.agent.coap.oscore.protected import (
    DEVICE,
    UNAUTHORIZED,
    ProtectedSensor,
    posted_by_aiocoap,
    sensor_folder,
)
from tests.agent.coap.sensor import BLOCK1, BODY, CON, GET, URI_PATH, Sensor, datagram, post
from tests.agent.coap.serving import GENEROUS, serving
from tests.agent.coap.stepped_loop import SteppedLoop
from tests.agent.http.client import Client
from tests.agent.recorder import DURABLE, Recorder
from tests.support.agent_process import agent_process, configured, wait_until_ready
from tests.support.loop_turns import LoopTurns
from tests.support.waiting import until

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
    async with serving(recorder, oscore=offering(tmp_path, required=True)) as server, Sensor(server.port) as socket:
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
            assert (await sensor.answer(socket, sensor.request(code=code, path=path))).code == expected
        message = Message(code=Code.POST, uri_path=("e",), payload=BODY, if_match=[b"x"], echo=sensor.echo)
        assert (await sensor.answer(socket, sensor.sealed(message))).code == Code.BAD_OPTION


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


REQUESTS = 24
PER_TURN = 2


def slowed(monkeypatch: pytest.MonkeyPatch, name: str, clock: SteppedLoop, turns: LoopTurns) -> None:
    """Make a step of the cryptography take time on the loop's clock."""
    step = getattr(SecurityContext, name)

    def slow(self: SecurityContext, *arguments: Any, **named: Any) -> Any:
        turns.note()
        clock.step(TURN_SECONDS_MAX / PER_TURN)
        return step(self, *arguments, **named)

    monkeypatch.setattr(SecurityContext, name, slow)


@pytest.mark.guarantee(6)
async def test_requests_that_come_at_once_are_opened_in_turns(
    tmp_path: Path, sensor: ProtectedSensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = LoopTurns()
    async with serving(Recorder(), GENEROUS, oscore=offering(tmp_path)) as server:
        with SteppedLoop() as clock, Sensor(server.port) as socket, turns.counting():
            slowed(monkeypatch, "unprotect", clock, turns)
            for _ in range(REQUESTS):
                socket.send(sensor.request()[0])
            await until(lambda: turns.total == REQUESTS, "all are opened")
    assert turns.most <= PER_TURN


@pytest.mark.guarantee(6)
async def test_answers_that_become_due_at_once_are_protected_in_turns_and_none_is_left_out_at_the_end(
    tmp_path: Path, sensor: ProtectedSensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns, recorder = LoopTurns(), Recorder()
    async with serving(recorder, GENEROUS, oscore=offering(tmp_path)) as server:
        with SteppedLoop() as clock, Sensor(server.port) as socket, turns.counting():
            await sensor.post(socket)
            slowed(monkeypatch, "protect", clock, turns)
            recorder.answer = None
            echoes = [(await sensor.answer(socket, sensor.request(echo=b"none"))).opt.echo for _ in range(REQUESTS)]
            challenges, turns.most = turns.total, 0
            asked = [sensor.request(echo=echo) for echo in echoes]
            for raw, _ in asked:
                socket.send(raw)
            await recorder.received(1 + REQUESTS)
            for _ in range(REQUESTS):
                recorder.respond()
            await server.drain()
            assert turns.total == challenges + REQUESTS
            answers = [sensor.read(await socket.receive_raw(), reference) for _, reference in asked]
    assert [answer.code for answer in answers] == REQUESTS * [Code.CHANGED]
    assert turns.most <= PER_TURN


@pytest.mark.guarantee(6)
async def test_requests_that_wait_to_be_opened_are_bounded_in_bytes(
    tmp_path: Path, sensor: ProtectedSensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contexts, "WAITING_BYTES_MAX", 200)
    turns = LoopTurns()
    async with serving(Recorder(), GENEROUS, oscore=offering(tmp_path)) as server:
        with SteppedLoop() as clock, Sensor(server.port) as socket:
            slowed(monkeypatch, "unprotect", clock, turns)
            for _ in range(REQUESTS):
                socket.send(sensor.request()[0])
            codes = [Message.decode(await socket.receive_raw()).code for _ in range(REQUESTS)]
    assert codes.count(Code.SERVICE_UNAVAILABLE) == REQUESTS - turns.total
    assert 200 // len(sensor.request()[0]) <= turns.total < REQUESTS


@pytest.mark.guarantee(6)
async def test_the_event_loop_goes_on_while_numbers_are_reserved_on_a_slow_disk(
    tmp_path: Path, sensor: ProtectedSensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = threading.Event(), threading.Event()
    fsync = os.fsync

    def slow_fsync(descriptor: int) -> None:
        begun.set()
        assert may_end.wait(5)
        fsync(descriptor)

    async with serving(Recorder(), GENEROUS, oscore=offering(tmp_path)) as server, Sensor(server.port) as socket:
        raw, reference = sensor.request()
        monkeypatch.setattr(os, "fsync", slow_fsync)
        socket.send(raw)
        await until(begun.is_set, "the disk is written to")
        with Sensor(server.port) as other:
            assert (await other.ask(post())).code == Code.CHANGED
        may_end.set()
        assert sensor.read(await socket.receive_raw(), reference).code == Code.UNAUTHORIZED


@pytest.mark.guarantee(6)
async def test_uploads_of_strangers_push_out_none_under_oscore(tmp_path: Path, sensor: ProtectedSensor) -> None:
    recorder = Recorder()
    body = BODY.ljust(20, b"\x00")

    async with serving(recorder, GENEROUS, oscore=offering(tmp_path)) as server, Sensor(server.port) as socket:
        await sensor.post(socket)
        assert (await sensor.answer(socket, sensor.block(body, 0, more=True))).code == Code.CONTINUE
        for number in range(ASSEMBLIES_MAX):
            with Sensor(server.port) as stranger:
                plain = post(number + 1, payload=body[:16], options=((BLOCK1, b"\x08"),))
                assert (await stranger.ask(plain)).code == Code.CONTINUE
        assert (await sensor.answer(socket, sensor.block(body, 1, more=False))).code == Code.CHANGED
    assert recorder.deliveries[-1].body == body


@pytest.mark.guarantee(2)
def test_every_credential_protects_its_name_on_every_way_in_also_where_its_file_cannot_be_used(
    tmp_path: Path,
) -> None:
    (port,) = ports.free(1, socket.SOCK_DGRAM)
    credentials, tokens = tmp_path / "credentials", tmp_path / "tokens"
    credentials.mkdir()
    good, relay, open_to_all, repeated, of_token = (
        f"urn:x:{name}" for name in ("a", "relay", "open", "twice", "token")
    )
    create_credential(credentials, good, relay=False)
    create_credential(credentials, relay, relay=True)
    file, _ = create_credential(credentials, open_to_all, relay=False)
    file.chmod(0o644)
    text = file.read_text().replace(open_to_all, repeated).replace('sensor_id = "03"', 'sensor_id = "01"')
    (credentials / "zz.toml").write_text(text)
    (credentials / "zz.toml").chmod(0o640)
    tokens.write_text(f"device {of_token} sha256:{'0' * 64}\nreader r sha256:{'1' * 64}\n")
    tokens.chmod(0o640)
    configuration = configured(tmp_path, f'[coap.oscore]\ncredentials_dir = "{credentials}"\n', coap=f"[::1]:{port}")
    configuration.write_text(configuration.read_text().replace("[http]", f'[http]\ntoken_file = "{tokens}"'))

    def codes(agent: Process) -> tuple[list[int], int]:
        agent.start()
        http = Client(wait_until_ready(agent)["http"])
        devices = (good, relay, open_to_all, repeated, of_token, good.upper(), "r")
        answers = [asyncio.run(plainly(port, f'{{"device":"{device}","id":1}}'.encode())) for device in devices]
        ready = asyncio.run(http.get("/readyz")).code
        agent.terminate()
        return answers, ready

    with agent_process(configuration) as agent:
        assert codes(agent) == ([0x83] * 6 + [0x44], 200)
        (credentials / "torn.toml").write_text("device =")
        assert codes(agent) == ([0x81] * 7, 503)
    log = (tmp_path / "agent.log").read_text()
    assert "oscore=required" in log


async def plainly(port: int, body: bytes) -> int:
    """Post an event without OSCORE; return the answer's code."""
    with Sensor(port) as sensor:
        return (await sensor.ask(post(payload=body, content_format=50))).code
