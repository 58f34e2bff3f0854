"""Many bodies at once that take long to decode: the event loop's other tasks run between them."""

from __future__ import annotations

import asyncio

import pytest

from agent.coap.server import CoapServer
from agent.coap.slow_path import resource
from agent.coap.tuning import Tuning
from agent.config.settings import CoapSettings
from agent.delivery import Answer, Delivery, Respond, Status
from agent.pace import TURN_SECONDS_MAX
from tests.agent.coap.sensor import BODY, CHANGED, Sensor, post
from tests.agent.coap.stepped_loop import SteppedLoop
from tests.support.loop_turns import LoopTurns
from tests.support.waiting import until

DATAGRAMS = 48
PER_TURN = 2
SECONDS_EACH = TURN_SECONDS_MAX / PER_TURN
BUSY = 0xA3
QUICK = Tuning(slow_per_second=1e6)


@pytest.mark.guarantee(6)
@pytest.mark.parametrize("fast", [True, False])
async def test_slow_bodies_take_no_more_than_their_turn(*, fast: bool) -> None:
    turns = LoopTurns()
    with SteppedLoop() as clock:

        def receive(delivery: Delivery, respond: Respond) -> None:
            turns.note()
            clock.step(SECONDS_EACH)
            respond(Answer(Status.DURABLE, accepted=1))

        async with CoapServer(CoapSettings(bind="[::1]:0"), receive, tuning=QUICK, fast=fast) as server:
            with Sensor(server.port) as sensor, turns.counting():
                for number in range(DATAGRAMS):
                    sensor.send(post(number, number.to_bytes(2, "big")))
                await until(lambda: turns.total == DATAGRAMS, "all are taken")
    assert turns.most <= PER_TURN


async def test_a_datagram_that_raises_an_error_keeps_no_other_waiting() -> None:
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))
    seen = 0

    def receive(delivery: Delivery, respond: Respond) -> None:
        nonlocal seen
        seen += 1
        if seen == 1:
            raise RuntimeError("the first one")
        respond(Answer(Status.DURABLE, accepted=1))

    async with CoapServer(CoapSettings(bind="[::1]:0"), receive, tuning=QUICK) as server, Sensor(server.port) as sensor:
        for number in range(DATAGRAMS):
            sensor.send(post(number, number.to_bytes(2, "big")))
        codes = [(await sensor.receive()).code for _ in range(DATAGRAMS - 1)]
    assert set(codes) == {CHANGED}
    assert [str(error) for error in errors] == ["the first one"]


@pytest.mark.guarantee(6)
async def test_bodies_that_wait_for_their_turn_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "WAITING_BYTES_MAX", 10 * len(BODY))
    taken = 0
    with SteppedLoop() as clock:

        def receive(delivery: Delivery, respond: Respond) -> None:
            nonlocal taken
            taken += 1
            clock.step(TURN_SECONDS_MAX)
            respond(Answer(Status.DURABLE, accepted=1))

        async with CoapServer(CoapSettings(bind="[::1]:0"), receive, tuning=QUICK, fast=False) as server:
            with Sensor(server.port) as sensor:
                for number in range(DATAGRAMS):
                    sensor.send(post(number, number.to_bytes(2, "big")))
                codes = [(await sensor.receive()).code for _ in range(DATAGRAMS)]
            await until(lambda: not server.in_progress, "nothing is left in progress")
    assert set(codes) == {CHANGED, BUSY}
    assert codes.count(CHANGED) == taken >= 10
