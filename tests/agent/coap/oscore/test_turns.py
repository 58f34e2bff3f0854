"""Many requests under OSCORE at once, and a slow disk: the event loop's other tasks run in between."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest
from aiocoap import Message  # type: ignore[import-untyped] # aiocoap carries no types
from aiocoap.numbers.codes import Code  # type: ignore[import-untyped]

from agent.coap.oscore import contexts
from agent.coap.oscore.contexts import SecurityContext
from agent.coap.slow_path.blocks import ASSEMBLIES_MAX
from agent.pace import TURN_SECONDS_MAX
from tests.agent.coap.oscore.protected import ProtectedSensor
from tests.agent.coap.oscore.test_contexts import offering
from tests.agent.coap.sensor import BLOCK1, BODY, Sensor, post
from tests.agent.coap.serving import serving
from tests.agent.coap.slow_path.twin_servers import GENEROUS
from tests.agent.coap.stepped_loop import SteppedLoop
from tests.agent.recorder import Recorder
from tests.support.loop_turns import LoopTurns
from tests.support.waiting import until

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
            echoes = [await challenged(sensor, socket) for _ in range(REQUESTS)]
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


async def challenged(sensor: ProtectedSensor, socket: Sensor) -> bytes:
    """Send a request without a valid Echo value, and return the value of the challenge."""
    raw, reference = sensor.request(echo=b"none")
    echo: bytes = sensor.read(await socket.ask_raw(raw), reference).opt.echo
    return echo


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
        raw, reference = sensor.block(body, 0, more=True)
        assert sensor.read(await socket.ask_raw(raw), reference).code == Code.CONTINUE
        for number in range(ASSEMBLIES_MAX):
            with Sensor(server.port) as stranger:
                plain = post(number + 1, payload=body[:16], options=((BLOCK1, b"\x08"),))
                assert (await stranger.ask(plain)).code == Code.CONTINUE
        raw, reference = sensor.block(body, 1, more=False)
        assert sensor.read(await socket.ask_raw(raw), reference).code == Code.CHANGED
    assert recorder.deliveries[-1].body == body
