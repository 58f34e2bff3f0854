"""Answers that come too late for the ACK."""

from __future__ import annotations

import pytest

from agent.coap.tuning import Tuning
from agent.delivery import Answer, Status
from tests.coap.recorder import Recorder
from tests.coap.sensor import ACK, CON, NON, RST, Heard, Sensor, datagram, post
from tests.coap.serving import serving
from tests.support.waiting import until

SOON = Tuning(empty_ack_seconds=0.02, ack_timeout_seconds=0.02, ack_random_factor=1.1)
PATIENT = Tuning(empty_ack_seconds=0.02, drain_seconds_max=0.05)

both_paths = pytest.mark.parametrize("fast", [True, False], ids=["fast", "aiocoap"])


def settled(kind: int, mid: int) -> bytes:
    return datagram(kind, 0, mid, b"")


@both_paths
@pytest.mark.parametrize("kind", [ACK, RST])
async def test_after_an_empty_ack_the_answer_is_sent_until_it_is_settled(fast: bool, kind: int) -> None:
    recorder = Recorder(answer=None)
    async with serving(recorder, SOON, fast=fast) as server:
        with Sensor(server.port) as sensor:
            assert await sensor.ask(post(mid=5, token=b"tok")) == Heard(ACK, 0, 5, b"", b"")
            recorder.respond()
            first = await sensor.hear()
            assert (first.kind, first.code, first.token, first.rest) == (CON, 0x44, b"tok", b"")
            assert await sensor.hear() == first
            sensor.send(settled(kind, first.mid))
            await sensor.expect_silence()


async def test_an_answer_that_nobody_acknowledges_is_given_up() -> None:
    recorder = Recorder(answer=None)
    async with serving(recorder, SOON) as server:
        with Sensor(server.port) as sensor:
            await sensor.ask(post(mid=5))
            recorder.respond()
            answers = [await sensor.hear() for _ in range(1 + SOON.retransmits_max)]
            assert len(set(answers)) == 1
            await until(lambda: server.counters.given_up == 1, "the answer is given up")
            await sensor.expect_silence()
        assert (server.counters.separate, server.counters.retransmitted) == (1, 4)


async def test_a_retransmission_after_the_empty_ack_is_acknowledged_again() -> None:
    recorder = Recorder(answer=None)
    async with serving(recorder, PATIENT) as server:
        with Sensor(server.port) as sensor:
            assert await sensor.ask(post(mid=5)) == Heard(ACK, 0, 5, b"", b"")
            assert await sensor.ask(post(mid=5)) == Heard(ACK, 0, 5, b"", b"")
            recorder.respond()
            answer = await sensor.hear()
            sensor.send(settled(ACK, answer.mid))
            assert await sensor.ask(post(mid=5)) == Heard(ACK, 0x44, 5, b"\x01", b"")
    assert len(recorder.deliveries) == 1


async def test_a_late_refusal_is_told_and_not_remembered() -> None:
    recorder = Recorder(answer=None)
    async with serving(recorder, PATIENT) as server:
        with Sensor(server.port) as sensor:
            await sensor.ask(post(mid=5))
            recorder.respond(Answer(Status.UNAVAILABLE, retry_seconds=3))
            late = await sensor.hear()
            assert (late.kind, late.code) == (CON, 0xA3)
            sensor.send(settled(ACK, late.mid))
            sensor.send(post(mid=5))
            await recorder.received(2)
            recorder.respond()
            while (await sensor.hear()).code != 0x44:
                pass


async def test_a_non_confirmable_request_gets_no_empty_ack() -> None:
    recorder = Recorder(answer=None)
    async with serving(recorder, PATIENT) as server:
        with Sensor(server.port) as sensor:
            sensor.send(post(mid=5, kind=NON))
            assert await sensor.ask(post(mid=6)) == Heard(
                ACK, 0, 6, b"", b""
            )  # the later one's empty ACK: no other came
            sensor.send(post(mid=5, kind=NON))
            await sensor.expect_silence()
            recorder.respond()
            assert (await sensor.hear()).kind == NON


async def test_requests_that_came_one_after_the_other_are_acknowledged_each_in_its_turn() -> None:
    recorder = Recorder(answer=None)
    async with serving(recorder, PATIENT) as server:
        with Sensor(server.port) as sensor:
            for mid in (5, 6, 7):
                assert await sensor.ask(post(mid=mid)) == Heard(ACK, 0, mid, b"", b"")


def test_by_default_the_empty_ack_is_very_late() -> None:
    assert Tuning().empty_ack_seconds >= 20
