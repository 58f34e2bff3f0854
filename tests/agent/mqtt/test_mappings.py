"""Payloads of other programs, by mappings, over a real broker into the store."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulators.services.mosquitto import Mosquitto
from tests.agent.mappings.payloads import PUBLISHED
from tests.agent.mqtt.agents import accepted, agent, rejected, stored
from tests.agent.mqtt.publisher import Publisher
from tests.support.waiting import wait_for_count

CONFIGURATION = """
[[mqtt.subscriptions]]
topic = "application/+/device/+/event/+"
format = "chirpstack-v4"
[[mqtt.subscriptions]]
topic = "tele/+/SENSOR"
format = "tasmota"
[[mqtt.subscriptions]]
topic = "plant/+"
format = "acme"
[[mappings]]
name = "acme"
each = "body.readings"
skip = "item.kind == 'state'"
device = "plant:{topic[1]}"
id = "item.n"
data = { level = "item.v" }
"""
UPLINK, JOIN = PUBLISHED[0], PUBLISHED[2]
TASMOTA = "tele/kitchen/SENSOR"


@pytest.mark.guarantee(1, 2)
def test_payloads_are_events_once_though_they_come_twice_and_agent_and_broker_end(
    broker: Mosquitto, publisher: Publisher, tmp_path: Path
) -> None:
    readings = b'{"readings":[{"n":1,"v":7},{"kind":"state"},{"n":2,"v":8},{"n":3}]}'
    with agent(tmp_path, broker.port, CONFIGURATION) as process:
        process.start()
        process.wait_for_log("mqtt=connected")
        for _ in range(2):  # the same uplink, heard by two LoRa gateways and published twice
            publisher.publish(UPLINK.topic, UPLINK.body.encode())
        publisher.publish(JOIN.topic, JOIN.body.encode())
        publisher.publish("plant/7", readings)
        wait_for_count(lambda: accepted(tmp_path), 3, "they are stored")
        process.kill()
        publisher.publish(TASMOTA, b'{"Time":"2026-03-24T20:17:07","AM2301":{"Temperature":24.6},"TempUnit":"C"}')
        publisher.publish("plant/7", readings)
        broker.stop()  # one that is killed has lost what came in its last second: docs/zigbee2mqtt.md
        broker.start()
        process.start()
        wait_for_count(lambda: accepted(tmp_path), 4, "the one that came meanwhile is stored")
        process.terminate()
    assert UPLINK.event is not None
    uplink = UPLINK.event
    assert [(event["device"], event["id"], event["data"]) for event in stored(tmp_path)] == [
        (uplink["device"], uplink["id"], uplink["data"]),
        ("plant:7", 1, {"level": 7}),
        ("plant:7", 2, {"level": 8}),
        ("tasmota:kitchen", "2026-03-24T20:17:07", {"AM2301": {"Temperature": 24.6}}),
    ]
    assert {str(event["via"]) for event in stored(tmp_path)} == {"mqtt"}
    assert {reason for _, reason, _ in rejected(tmp_path)} == {"mapping acme: data: yields nothing"}
