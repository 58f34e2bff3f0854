"""Requests in progress, their retransmissions, and other requests with the same Message ID or Token."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from agent.coap.tuning import Tuning
from agent.delivery import Answer, Status
from tests.agent.coap.recorder import DURABLE, Recorder
from tests.agent.coap.sensor import ACK, BODY, CON, NON, Response, Sensor, post
from tests.agent.coap.serving import both_paths, serving


@pytest.mark.guarantee(1)
async def test_the_ack_is_withheld_until_the_outcome() -> None:
    recorder = Recorder(answer=None)
    async with serving(recorder) as server, Sensor(server.port) as sensor:
        sensor.send(post(mid=5))
        await recorder.received(1)
        await sensor.expect_silence()
        recorder.respond()
        assert await sensor.receive() == Response(ACK, 0x44, 5, b"\x01", b"")


async def test_a_retransmission_in_progress_is_met_with_silence_and_answered_once() -> None:
    recorder = Recorder(answer=None)
    async with serving(recorder) as server:
        with Sensor(server.port) as sensor:
            for _ in range(3):
                sensor.send(post(mid=5))
            await sensor.expect_silence()
            assert len(recorder.deliveries) == 1
            recorder.respond()
            assert (await sensor.receive()).code == 0x44
            await sensor.expect_silence()
        assert (server.counters.fast, server.counters.duplicates) == (1, 2)


@pytest.mark.parametrize("kind", [CON, NON])
@pytest.mark.parametrize("status", [Status.DURABLE, Status.UNDECODABLE, Status.UNKNOWN_FORMAT, Status.TOO_LARGE])
async def test_a_retransmission_after_a_lasting_answer_gets_the_same_answer(kind: int, status: Status) -> None:
    recorder = Recorder(Answer(status, reason="as it is"))
    async with serving(recorder) as server, Sensor(server.port) as sensor:
        first = await sensor.ask(post(kind=kind))
        recorder.answer = Answer(Status.FORBIDDEN)
        assert await sensor.ask(post(kind=kind)) == first
    assert len(recorder.deliveries) == 1


@pytest.mark.guarantee(4)
async def test_once_the_store_has_forgotten_events_a_retransmission_is_asked_about_again() -> None:
    recorder = Recorder()
    async with serving(recorder) as server, Sensor(server.port) as sensor:
        await sensor.ask(post())
        server.forget_answers()
        await sensor.ask(post())
    assert len(recorder.deliveries) == 2


@pytest.mark.parametrize("status", [Status.UNAVAILABLE, Status.UNAUTHENTICATED, Status.FORBIDDEN])
async def test_a_refusal_is_not_remembered(status: Status) -> None:
    recorder = Recorder(Answer(status))
    async with serving(recorder) as server, Sensor(server.port) as sensor:
        assert (await sensor.ask(post())).code != 0x44
        recorder.answer = DURABLE
        assert (await sensor.ask(post())).code == 0x44
    first, second = recorder.deliveries
    assert first.retransmission_key == second.retransmission_key


@pytest.mark.guarantee(2)
@both_paths
async def test_other_bytes_under_the_same_message_id_and_token_are_a_new_request(fast: bool) -> None:
    recorder = Recorder()
    async with serving(recorder, fast=fast) as server, Sensor(server.port) as sensor:
        await sensor.ask(post(mid=5, token=b"t", payload=BODY))
        await sensor.ask(post(mid=5, token=b"t", payload=BODY[:-1] + b"\x02"))
    first, second = recorder.deliveries
    assert first.retransmission_key != second.retransmission_key


async def test_the_same_bytes_from_another_port_are_a_new_request() -> None:
    recorder = Recorder()
    async with serving(recorder) as server, Sensor(server.port) as sensor, Sensor(server.port) as other:
        await sensor.ask(post())
        await other.ask(post())
    first, second = recorder.deliveries
    assert first.retransmission_key != second.retransmission_key


async def test_the_same_bytes_to_another_address_of_ours_are_a_new_request() -> None:
    recorder = Recorder()
    async with serving(recorder) as server:
        with Sensor(server.port, "127.0.0.1") as sensor, Sensor(server.port, "127.0.0.2") as other:
            assert (await sensor.ask(post())).code == 0x44
            assert (await other.ask(post())).code == 0x44  # and it leaves from 127.0.0.2: the socket is connected
    assert [delivery.sender for delivery in recorder.deliveries] == ["coap://127.0.0.1", "coap://127.0.0.1"]


@pytest.mark.guarantee(2)
async def test_a_restart_of_the_server_changes_no_proof() -> None:
    recorder = Recorder()
    with ExitStack() as sensors:
        async with serving(recorder) as server:
            port = server.port
            sensor = sensors.enter_context(Sensor(port))
            await sensor.ask(post())
        async with serving(recorder, bind=f"[::]:{port}"):
            await sensor.ask(post())
    first, second = recorder.deliveries
    assert first.retransmission_key == second.retransmission_key


@both_paths
async def test_requests_with_one_token_are_answered_each(fast: bool) -> None:
    recorder = Recorder(answer=None)
    async with serving(recorder, fast=fast) as server, Sensor(server.port) as sensor:
        sensor.send(post(mid=5, token=b"t"))
        sensor.send(post(mid=6, token=b"t"))
        await recorder.received(2)
        recorder.respond()
        recorder.respond()
        assert {(await sensor.receive()).mid, (await sensor.receive()).mid} == {5, 6}


async def test_too_many_requests_in_progress_are_refused_for_now() -> None:
    recorder = Recorder(answer=None)
    async with serving(recorder, Tuning(exchanges_max=1)) as server:
        with Sensor(server.port) as sensor:
            sensor.send(post(mid=5))
            refused = await sensor.ask(post(mid=6))
            assert (refused.mid, refused.code, refused.rest[:3]) == (6, 0xA3, b"\xd1\x01\x05")
            recorder.respond()
            assert (await sensor.receive()).mid == 5
            sensor.send(post(mid=6))
            await recorder.received(2)
            recorder.respond()
            assert await sensor.receive() == Response(ACK, 0x44, 6, b"\x01", b"")
        assert server.counters.refused == 1
