"""Temporary refusals of requests under OSCORE."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiocoap.numbers.codes import Code  # type: ignore[import-untyped] # aiocoap carries no types

from agent.delivery import Answer, Status
from tests.agent.coap.oscore.protected import ProtectedSensor, sensor_folder
from tests.agent.coap.oscore.test_contexts import offering
from tests.agent.coap.recorder import DURABLE, Recorder
from tests.agent.coap.sensor import Sensor
from tests.agent.coap.serving import serving


@pytest.mark.guarantee(6)
async def test_a_retransmission_of_what_was_refused_gets_the_refusal_and_a_new_request_is_taken(tmp_path: Path) -> None:
    """Processing the same datagram again would be a replay (RFC 8613 section 7.4), so Max-Age is omitted."""
    sensor = ProtectedSensor(sensor_folder(tmp_path / "sensor"))
    recorder = Recorder()
    async with serving(recorder, oscore=offering(tmp_path)) as server:
        with Sensor(server.port) as socket:
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
