"""The lists of allowed and denied devices, over CoAP."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.coap.server import CoapServer
from agent.config.settings import CoapSettings, DevicesSettings, IdentitySettings
from agent.pipeline import Pipeline
from tests.agent.coap.sensor import Sensor, post
from tests.agent.store.stores import HandClock, make_store, stored_events

FORBIDDEN, CHANGED = 0x83, 0x44


@pytest.mark.guarantee(6)
@pytest.mark.parametrize("fast", [True, False], ids=["fast", "aiocoap"])
async def test_a_denied_device_gets_4_03_and_another_2_04(tmp_path: Path, fast: bool) -> None:
    clock = HandClock()
    devices = DevicesSettings(allow=("urn:dev:mac:*",), deny=("urn:dev:mac:bad*",))
    bodies = [b'{"device":"urn:dev:%s","id":1}' % name for name in (b"mac:bad0", b"ow:1", b"mac:good")]
    async with make_store(tmp_path, clock) as store:
        pipeline = Pipeline(IdentitySettings(), clock, store, devices)
        async with CoapServer(CoapSettings(bind="[::]:0"), pipeline.receive, fast=fast) as server:
            with Sensor(server.port) as sensor:
                response = [
                    await sensor.ask(post(mid, payload=body, content_format=50)) for mid, body in enumerate(bodies)
                ]
        stored = stored_events(store)[1:]
    assert [one.code for one in response] == [FORBIDDEN, FORBIDDEN, CHANGED]
    assert b"allow, deny" not in response[2].rest
    assert b"not allowed" in response[0].rest
    assert [b"mac:good" in event.tail for event in stored] == [True]
