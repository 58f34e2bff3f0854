"""A sensor without a clock receives the gateway's time in the answer to its events."""

from __future__ import annotations

from pathlib import Path

import cbor2
import pytest
from aiocoap import Message  # type: ignore[import-untyped] # aiocoap carries no types
from aiocoap.numbers.codes import Code  # type: ignore[import-untyped]

from agent.coap.message import Option, write_options
from agent.coap.oscore.serving import OscoreServing
from agent.delivery import Answer, Status
from tests.agent.coap.oscore.protected import CREDENTIAL, ProtectedSensor, sensor_folder
from tests.agent.coap.recorder import Recorder
from tests.agent.coap.sensor import BODY, CHANGED, NON, URI_QUERY, Sensor, post
from tests.agent.coap.serving import serving

NOW = 1_763_706_000_123
ASKING = ((URI_QUERY, b"now"), (URI_QUERY, b"d=urn:x:1"))
ANSWERED = write_options((Option(12, b"\x3c"),)) + b"\xff" + cbor2.dumps(NOW)


@pytest.mark.parametrize("fast", [True, False])
async def test_whoever_asks_is_told_the_time_and_nobody_else(fast: bool) -> None:
    recorder = Recorder()
    async with serving(recorder, fast=fast, now=lambda: NOW) as server:
        with Sensor(server.port) as sensor:
            asked = await sensor.ask(post(1, options=ASKING))
            assert (asked.code, asked.rest) == (CHANGED, ANSWERED)
            assert (await sensor.ask(post(2, kind=NON, options=ASKING))).rest == ANSWERED
            assert (await sensor.ask(post(3))).rest == b""
        assert server.counters.fast == (3 if fast else 0)
    assert recorder.deliveries[0].query == {"d": "urn:x:1"}


async def test_a_gateway_that_is_not_sure_of_the_time_tells_none() -> None:
    async with serving(Recorder()) as server, Sensor(server.port) as sensor:
        response = await sensor.ask(post(options=ASKING))
    assert (response.code, response.rest) == (CHANGED, b"")


async def test_a_retransmission_is_told_the_time_as_it_is_then() -> None:
    times = iter((NOW - 90_000, NOW))
    recorder = Recorder()
    async with serving(recorder, now=lambda: next(times)) as server, Sensor(server.port) as sensor:
        await sensor.ask(post(options=ASKING))
        assert (await sensor.ask(post(options=ASKING))).rest == ANSWERED
    assert recorder.deliveries[0].retransmission_key == recorder.deliveries[1].retransmission_key


async def test_a_refusal_tells_no_time() -> None:
    async with serving(Recorder(Answer(Status.UNDECODABLE, reason="no")), now=lambda: NOW) as server:
        with Sensor(server.port) as sensor:
            response = await sensor.ask(post(options=ASKING))
    assert (response.code, response.rest) == (0x80, b"\xffno")


async def test_the_time_is_told_under_oscore_too(tmp_path: Path) -> None:
    oscore = OscoreServing((CREDENTIAL,), tmp_path / "numbers")
    client = ProtectedSensor(sensor_folder(tmp_path / "sensor"))
    async with serving(Recorder(), oscore=oscore, now=lambda: NOW) as server, Sensor(server.port) as sensor:
        await client.post(sensor)
        message = Message(code=Code.POST, uri_path=("e",), uri_query=("now",), payload=BODY, echo=client.echo)
        raw, reference = client.sealed(message)
        answer = client.read(await sensor.ask_raw(raw), reference)
    assert (answer.code, cbor2.loads(answer.payload)) == (Code.CHANGED, NOW)
