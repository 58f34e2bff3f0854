"""The real Zigbee2MQTT, without a radio, with the real agent: no event is lost, and renames have no effect."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simulators.services.install import programs
from simulators.services.mosquitto import Mosquitto
from simulators.services.zigbee2mqtt import FIRST_TEMPERATURE, Zigbee2Mqtt, ieee_address
from tests.agent.mqtt.agents import accepted, agent, stored
from tests.agent.mqtt.publisher import Publisher
from tests.support.waiting import wait_for_count, wait_until

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(programs.find("npm") is None, reason="npm fetches Zigbee2MQTT; run: sudo apt-get install npm"),
]
REPORTS = 500
SECONDS_MAX = 120.0


def _device(number: int) -> str:
    return f"urn:dev:mac:{ieee_address(number)[2:]}"


@pytest.mark.guarantee(1)
@pytest.mark.parametrize("last_seen", ["epoch", "ISO_8601"])
def test_every_report_is_in_the_store_once_though_the_agent_is_killed(
    broker: Mosquitto, publisher: Publisher, tmp_path: Path, last_seen: str
) -> None:
    settings = {"advanced": {"last_seen": last_seen}}
    with (
        Zigbee2Mqtt(tmp_path / "zigbee2mqtt", broker.port, reports=REPORTS, settings=settings) as source,
        agent(tmp_path, broker.port) as process,
    ):
        process.start()
        process.wait_for_log("mqtt=connected")
        source.report()
        wait_until(lambda: accepted(tmp_path) > 20, "some reports are stored", SECONDS_MAX)
        process.kill()
        process.start()
        wait_for_count(lambda: accepted(tmp_path), REPORTS, "all reports are stored")
        publisher.publish("zigbee2mqtt/bridge/request/device/rename", json.dumps({"from": "t0", "to": "hall/north"}))
        source.process.wait_for_log("zigbee2mqtt/bridge/response/device/rename")
        source.report()
        wait_for_count(lambda: accepted(tmp_path), 2 * REPORTS, "the reports of the renamed are stored")
        assert process.terminate() == 0
    events = stored(tmp_path)
    each = [round(FIRST_TEMPERATURE + number / 100, 2) for number in range(REPORTS // 2)]
    for number in (0, 1):
        temperatures = [_temperature(event) for event in events if event["device"] == _device(number)]
        assert sorted(temperatures) == sorted(each * 2)
    assert len(events) == 2 * REPORTS
    assert all(set(_data(event)) == {"temperature"} and "time" in event for event in events)


def _data(event: dict[str, object]) -> dict[str, object]:
    data = event["data"]
    assert isinstance(data, dict)
    return data


def _temperature(event: dict[str, object]) -> float:
    return float(str(_data(event)["temperature"]))
