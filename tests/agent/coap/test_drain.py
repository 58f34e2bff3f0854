"""The end of the server."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from agent.coap.errors import CoapBindError
from agent.coap.tuning import Tuning
from tests.agent.coap.recorder import Recorder
from tests.agent.coap.sensor import CHANGED, Sensor, post
from tests.agent.coap.serving import both_paths, serving


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
        with pytest.raises(CoapBindError, match=rf"coap.bind.*\[::\]:{server.port}"):
            await serving(Recorder(), bind=bind).__aenter__()


@pytest.mark.parametrize("bind", ["localhost:0", "[::1]", "5683", "[::1]:coap", ""])
async def test_an_address_that_is_none_is_an_error_that_names_it(bind: str) -> None:
    with pytest.raises(CoapBindError, match=r"coap\.bind"):
        await serving(Recorder(), bind=bind).__aenter__()


@pytest.mark.parametrize(
    ("bind", "host", "address"), [("127.0.0.1:0", "127.0.0.1", "[::ffff:127.0.0.1]"), ("[::1]:0", "::1", "[::1]")]
)
async def test_the_server_listens_where_it_is_told(bind: str, host: str, address: str) -> None:
    async with serving(Recorder(), bind=bind) as server:
        assert server.address == f"{address}:{server.port}"
        with Sensor(server.port, host) as sensor:
            assert (await sensor.ask(post())).code == CHANGED
