"""The event loop's other tasks run, however much a broker sends."""

from __future__ import annotations

import pytest

from agent.config.subscriptions import Subscription
from agent.delivery import Delivery, Media, Respond
from agent.mqtt.connection import READS_PER_TURN
from agent.pace import TURN_SECONDS_MAX
from tests.agent.coap.stepped_loop import SteppedLoop
from tests.agent.mqtt.gateway import DURABLE, Recorder, running
from tests.agent.mqtt.raw_broker import publish, raw_broker
from tests.support.loop_turns import LoopTurns
from tests.support.waiting import until

EVENTS = (Subscription("plant/{device}/events", Media.JSON),)
MESSAGE = publish(b"plant/a/events", b"1")


class Counting(Recorder):
    """Records which messages arrive in which turn of the loop; each takes its time."""

    def __init__(self, clock: SteppedLoop, seconds_each: float) -> None:
        super().__init__()
        self.turns = LoopTurns()
        self._clock = clock
        self._seconds_each = seconds_each

    def receive(self, delivery: Delivery, respond: Respond) -> None:
        self.turns.note()
        self._clock.step(self._seconds_each)
        respond(DURABLE)


async def _most_in_a_turn(messages: int, seconds_each: float) -> int:
    with SteppedLoop() as clock:
        recorder = Counting(clock, seconds_each)
        async with raw_broker("5") as broker, running(recorder, broker.port, subscriptions=EVENTS):
            await broker.until_connected(1)
            with recorder.turns.counting():
                await broker.send(messages * MESSAGE)
                await until(lambda: recorder.turns.total == messages, "all are taken")
    return recorder.turns.most


@pytest.mark.guarantee(6)
async def test_readers_of_one_connection_do_not_multiply() -> None:
    assert await _most_in_a_turn(20_000, 0.0) <= READS_PER_TURN


@pytest.mark.guarantee(6)
async def test_slow_bodies_take_no_more_than_their_turn() -> None:
    assert await _most_in_a_turn(100, TURN_SECONDS_MAX / 2) <= 2
