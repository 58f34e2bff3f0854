"""Broker and Zigbee2MQTT: a real mosquitto, and the information that Zigbee2MQTT publishes about itself."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.cli.doctor.finding import Condition, Finding
from agent.cli.doctor.mqtt import VERSION_TOPIC, check_mqtt, check_session, check_zigbee2mqtt, judge_mosquitto
from agent.config.settings import MqttSettings
from agent.config.subscriptions import Subscription
from agent.mappings import catalog
from agent.status import GatewayStatus
from agent.store.counts import EventCounts
from simulators.services.mosquitto import Mosquitto
from tests.agent.mqtt.publisher import Publisher
from tests.agent.mqtt.raw_broker import raw_broker
from tests.docs.pages import ROOT, blocks

GOOD = {
    "advanced": {"last_seen": "epoch", "output": "json", "cache_state_send_on_startup": False},
    "device_options": {"qos": 1},
    "devices": {"0x1": {"friendly_name": "t0"}},
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with Mosquitto(tmp_path / "mosquitto") as running:
        yield running


def examine(port: int, **settings: Any) -> list[Finding]:
    return list(check_mqtt(MqttSettings(enabled=True, host="127.0.0.1", port=port, **settings), "gw1"))


def unlike(findings: list[Finding]) -> list[tuple[str, Condition]]:
    return [(finding.check, finding.condition) for finding in findings if finding.condition is not Condition.FINE]


def test_a_broker_with_the_right_settings_and_a_right_zigbee2mqtt_are_fine(broker: Mosquitto, tmp_path: Path) -> None:
    with Publisher(broker.port) as publisher:
        publisher.publish("zigbee2mqtt/bridge/info", json.dumps({"config": GOOD}), retain=True)
        findings = examine(broker.port)
    assert unlike(findings) == []
    assert any("mosquitto version" in finding.text for finding in findings)
    file = tmp_path / "mosquitto" / "mosquitto.conf"
    settings = ("persistence true", "autosave_interval 1", "max_queued_messages 0")
    assert {f"{setting} ({file})" for setting in settings} <= {one.text for one in findings}


def test_a_publisher_at_qos_0_and_a_mapping_without_identity_are_told(broker: Mosquitto) -> None:
    known = catalog.builtin()
    subscriptions = tuple(Subscription(f"{name}/+/state", known[name]) for name in ("esphome", "zwave-js-ui"))
    with Publisher(broker.port) as publisher:
        publisher.publish("esphome/a/state", b"1", retain=True)
        publisher.publish("zwave-js-ui/a/state", b"1", qos=0, retain=True)
        findings = examine(broker.port, base_topic="", subscriptions=subscriptions)
    assert [(one.text.partition(":")[0], one.condition) for one in findings[-4:]] == [
        ("esphome/+/state", Condition.WARNING),
        ("esphome/+/state", Condition.FINE),
        ("zwave-js-ui/+/state comes at QoS 0", Condition.WARNING),
        ("zwave-js-ui/+/state", Condition.FINE),
    ]


def test_a_mosquitto_is_judged_by_its_own_files_and_no_other(broker: Mosquitto, tmp_path: Path) -> None:
    included = tmp_path / "conf.d"
    included.mkdir()
    (included / "own.conf").write_text("persistence false\n")
    with Mosquitto(tmp_path / "other", ("allow_anonymous true", f"include_dir {included}")) as other:
        (wrong,) = [one for one in examine(other.port) if one.condition is Condition.WRONG]
        assert wrong.hint == f"persistence true in {tmp_path / 'other' / 'mosquitto.conf'}"
        assert [one for one in examine(broker.port) if one.condition is Condition.WRONG] == []


@pytest.mark.parametrize("closes_at", [b"", VERSION_TOPIC.encode()])
async def test_of_a_broker_that_does_not_name_itself_nothing_is_claimed(broker: Mosquitto, closes_at: bytes) -> None:
    """Some close the connection of whoever asks for its name."""
    async with raw_broker("5", closes_at=closes_at) as unknown:
        findings = await asyncio.to_thread(examine, unknown.port)
    assert unlike(findings) == [("mqtt", Condition.WARNING), ("zigbee2mqtt", Condition.WARNING)]
    assert findings[0].text == f"127.0.0.1:{unknown.port} answers"
    assert findings[1].text == "unknown broker: does it keep QoS 1 sessions on disk?"


@pytest.mark.parametrize("refused", [b"\0\x01", b"\0\x84\0"])
async def test_a_broker_without_the_version_of_the_agent_is_told_with_the_setting(refused: bytes) -> None:
    async with raw_broker("3.1.1", refused=refused) as old:
        (five,) = await asyncio.to_thread(examine, old.port)
        three = await asyncio.to_thread(examine, old.port, version="3.1.1")
    assert (five.condition, five.hint) == (Condition.WRONG, 'mqtt.version = "3.1.1"')
    assert three[0].condition is Condition.FINE


def test_a_session_that_the_broker_has_lost_lately_is_a_warning() -> None:
    empty = GatewayStatus("gw", 0, 0, 0, EventCounts(0, 0, 0), 0, None, 0, 0, None, None, None, None)
    status = replace(empty, mqtt_sessions_lost=2, mqtt_session_lost_at=1_763_706_000_000)
    found = {days: list(check_session(status, 1_763_706_000_000 + days * 86_400_000)) for days in (1, 8)}
    (finding,) = found[1]
    assert (finding.condition, "lost the agent's session 2 times" in finding.text) == (Condition.WARNING, True)
    assert found[8] == []


@pytest.mark.parametrize(
    ("section", "key", "value", "text", "lines"),
    [
        ("advanced", "last_seen", "disable", "becomes two events", "advanced:\n  last_seen: epoch"),
        ("advanced", "last_seen", "ISO_8601_local", "becomes two events", "advanced:\n  last_seen: epoch"),
        ("device_options", "qos", 0, "QoS 0 for all devices", "device_options:\n  qos: 1"),
        ("devices", "0x1", {"friendly_name": "t0", "qos": 0}, "QoS 0 for t0", "devices:\n  '0x1':\n    qos: 1"),
        ("advanced", "output", "attribute", "not read", "advanced:\n  output: json"),
        (
            *("advanced", "cache_state_send_on_startup", True, "cached states"),
            "advanced:\n  cache_state_send_on_startup: false",
        ),
    ],
)
def test_a_setting_of_zigbee2mqtt_that_loses_or_doubles_is_named_with_the_lines_that_correct_it(
    section: str, key: str, value: object, text: str, lines: str
) -> None:
    config: dict[str, Any] = {**GOOD, section: {**GOOD[section], key: value}}  # type: ignore[dict-item]  # of JSON's types
    findings = check_zigbee2mqtt(json.dumps({"config": config}).encode(), "zigbee2mqtt")
    found, last = (finding for finding in findings if finding.condition is not Condition.FINE)
    assert text in found.text
    assert last.hint == lines
    corrected = yaml.safe_load(last.hint)
    merged = {name: {**part, **corrected.get(name, {})} for name, part in config.items()}
    assert all(
        finding.condition is Condition.FINE
        for finding in check_zigbee2mqtt(json.dumps({"config": merged}).encode(), "zigbee2mqtt")
    )


def test_a_fresh_zigbee2mqtt_is_told_all_lines_at_once() -> None:
    *_, last = check_zigbee2mqtt(b'{"config": {}}', "zigbee2mqtt")
    (recommended,) = blocks(ROOT / "docs" / "zigbee2mqtt.md", "yaml")
    wanted = yaml.safe_load(last.hint)
    assert wanted == {
        "advanced": {"last_seen": "epoch", "cache_state_send_on_startup": False},
        "device_options": {"qos": 1},
    }
    assert all(yaml.safe_load(recommended)[name].items() >= part.items() for name, part in wanted.items())


def test_a_broker_that_refuses_or_is_away_is_wrong(tmp_path: Path) -> None:
    with Mosquitto(tmp_path / "mosquitto", ("allow_anonymous false",)) as closed:
        (refused,) = examine(closed.port)
    (away,) = examine(closed.port)
    assert (refused.condition, "refuses the connection" in refused.text) == (Condition.WRONG, True)
    assert (away.condition, "cannot connect" in away.text) == (Condition.WRONG, True)


def test_zigbee2mqtt_is_looked_for_where_it_publishes(broker: Mosquitto) -> None:
    with Publisher(broker.port) as publisher:
        publisher.publish("upstairs/bridge/info", json.dumps({"config": GOOD}), retain=True)
        there, elsewhere = (
            {(one.check, one.condition) for one in examine(broker.port, base_topic=base)}
            for base in ("upstairs", "downstairs")
        )
    found = ("zigbee2mqtt", Condition.FINE)
    assert (found in there, found in elsewhere) == (True, False)


def test_what_mosquitto_does_by_itself_loses_messages() -> None:
    conditions = [(finding.condition, finding.hint) for finding in judge_mosquitto({}, "mosquitto.conf")]
    assert conditions == [
        (Condition.WRONG, "persistence true in mosquitto.conf"),
        (Condition.WARNING, "autosave_interval 1 in mosquitto.conf"),
        (Condition.WARNING, "max_queued_messages 0 in mosquitto.conf"),
    ]


@pytest.mark.parametrize("content", [None, b"persistence \xff\n"])
def test_settings_that_cannot_be_read_are_asked_for(broker: Mosquitto, tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "mosquitto" / "mosquitto.conf"
    file.unlink() if content is None else file.write_bytes(content)
    findings = examine(broker.port)
    assert unlike(findings) == [("mosquitto", Condition.WARNING), ("zigbee2mqtt", Condition.WARNING)]
    assert "persistence true" in findings[1].hint
