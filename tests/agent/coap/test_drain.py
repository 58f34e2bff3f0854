"""The end of the server."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from agent.coap.slow_path import resource
from agent.coap.tuning import Tuning
from agent.listening import BindError
from agent.pace import TURN_SECONDS_MAX
from tests.agent.coap.sensor import BODY, CHANGED, Sensor, post
from tests.agent.coap.serving import both_paths, serving
from tests.agent.coap.stepped_loop import SteppedLoop
from tests.agent.recorder import Recorder
from tests.support.loop_turns import LoopTurns
from tests.support.waiting import until


@both_paths
async def test_draining_takes_nothing_more_and_answers_what_is_in_progress(fast: bool) -> None:
    recorder = Recorder(answer=None)
    async with serving(recorder, fast=fast) as server, Sensor(server.port) as sensor:
        sensor.send(post(mid=1))
        await recorder.received(1)
        draining = asyncio.create_task(server.drain())
        await asyncio.sleep(0)
        sensor.send(post(mid=2))
        assert server.in_progress == 1
        recorder.respond()
        assert (await sensor.receive()).code == CHANGED
        await draining
        assert server.in_progress == 0
    assert len(recorder.deliveries) == 1


@both_paths
async def test_leaving_drains(fast: bool) -> None:
    recorder = Recorder(answer=None)
    with ExitStack() as sensors:
        async with serving(recorder, fast=fast) as server:
            sensor = sensors.enter_context(Sensor(server.port))
            sensor.send(post())
            await recorder.received(1)
            asyncio.get_running_loop().call_later(0.01, recorder.respond)
        assert (await sensor.receive()).code == CHANGED


@both_paths
async def test_a_server_that_is_closed_waits_no_longer_than_its_bound(fast: bool) -> None:
    recorder = Recorder(answer=None)
    async with serving(recorder, Tuning(drain_seconds_max=0.02), fast=fast) as server, Sensor(server.port) as sensor:
        sensor.send(post())
        await recorder.received(1)
    recorder.respond()  # too late, without effect


async def test_a_port_in_use_is_an_error_that_names_it() -> None:
    async with serving(Recorder()) as server:
        bind = f"[::]:{server.port}"
        with pytest.raises(BindError, match=rf"coap.bind.*\[::\]:{server.port}"):
            await serving(Recorder(), bind=bind).__aenter__()


@pytest.mark.parametrize(
    ("bind", "host", "address"), [("127.0.0.1:0", "127.0.0.1", "[::ffff:127.0.0.1]"), ("[::1]:0", "::1", "[::1]")]
)
async def test_the_server_listens_where_it_is_told(bind: str, host: str, address: str) -> None:
    async with serving(Recorder(), bind=bind) as server:
        assert server.address == f"{address}:{server.port}"
        with Sensor(server.port, host) as sensor:
            assert (await sensor.ask(post())).code == CHANGED


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
        async with serving(Recorder(work=turns.working(clock, SECONDS_EACH)), QUICK, fast=fast) as server:
            with Sensor(server.port) as sensor, turns.counting():
                for number in range(DATAGRAMS):
                    sensor.send(post(number, number.to_bytes(2, "big")))
                await until(lambda: turns.total == DATAGRAMS, "all are taken")
    assert turns.most <= PER_TURN


@pytest.mark.heavy
async def test_a_datagram_that_raises_an_error_keeps_no_other_waiting() -> None:
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))
    turns = LoopTurns()

    def work() -> None:
        turns.note()
        if turns.total == 1:
            raise RuntimeError("the first one")

    async with serving(Recorder(work=work), QUICK) as server, Sensor(server.port) as sensor:
        for number in range(DATAGRAMS):
            sensor.send(post(number, number.to_bytes(2, "big")))
        codes = [(await sensor.receive()).code for _ in range(DATAGRAMS - 1)]
    assert set(codes) == {CHANGED}
    assert [str(error) for error in errors] == ["the first one"]


@pytest.mark.guarantee(6)
async def test_bodies_that_wait_for_their_turn_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "WAITING_BYTES_MAX", 10 * len(BODY))
    turns = LoopTurns()
    with SteppedLoop() as clock:
        async with serving(Recorder(work=turns.working(clock, TURN_SECONDS_MAX)), QUICK, fast=False) as server:
            with Sensor(server.port) as sensor:
                for number in range(DATAGRAMS):
                    sensor.send(post(number, number.to_bytes(2, "big")))
                codes = [(await sensor.receive()).code for _ in range(DATAGRAMS)]
            await until(lambda: not server.in_progress, "nothing is left in progress")
    assert set(codes) == {CHANGED, BUSY}
    assert codes.count(CHANGED) == turns.total >= 10
