"""The device of a Zigbee2MQTT topic, and messages that are not events of a device."""

import json

import pytest

from agent.config.subscriptions import TOPIC_BYTES_MAX
from agent.mqtt.device_list import NAME_CHARACTERS_MAX
from agent.mqtt.zigbee_names import DEVICES, GROUPS, Kind, ZigbeeNames
from tests.agent.mqtt.device_lists import learn
from tests.support.calls import counted_calls

DOOR, LAMP = "urn:dev:mac:00158d0000000001", "urn:dev:mac:00158d0000000002"


def _list(**names: str) -> bytes:
    entries = [{"friendly_name": name.replace("__", "/"), "ieee_address": address} for name, address in names.items()]
    return json.dumps(entries).encode()


def _names() -> ZigbeeNames:
    names = ZigbeeNames()
    assert learn(names, DEVICES, _list(hall__door="0x00158d0000000001", lamp="0x00158D0000000002"))
    assert learn(names, GROUPS, json.dumps([{"id": 1, "friendly_name": "all/lamps"}]).encode())
    return names


@pytest.mark.parametrize(
    ("name", "payload", "kind"),
    [
        ("hall/door", b'{"contact":true}', Kind.DEVICE),
        ("lamp", b"garbage", Kind.DEVICE),
        ("lamp", b"", Kind.STATE),
        ("bridge/state", b'{"state":"online"}', Kind.STATE),
        ("bridge", b"{}", Kind.STATE),
        ("bridge2", b"{}", Kind.UNKNOWN),
        ("all/lamps", b'{"state":"ON"}', Kind.STATE),
        ("hall/door/availability", b'{"state":"online"}', Kind.STATE),
        ("lamp/set", b'{"state":"ON"}', Kind.STATE),
        ("lamp/set/state", b"ON", Kind.STATE),
        ("lamp/get", b'{"state":""}', Kind.STATE),
        ("lamp/l1/set", b'{"state":"ON"}', Kind.STATE),
        ("lamp/brightness", b"254", Kind.STATE),
        ("hall/door/contact", b"true", Kind.STATE),
        ("lamp/second", b'{"state":"ON"}', Kind.UNKNOWN),
        ("hall", b'{"contact":true}', Kind.UNKNOWN),
        ("hall/door ", b'{"contact":true}', Kind.UNKNOWN),
    ],
)
def test_the_lists_tell_what_a_message_is(name: str, payload: bytes, kind: Kind) -> None:
    assert _names().kind(name, payload) is kind


def test_nothing_is_guessed_before_the_list_of_devices() -> None:
    names = ZigbeeNames()
    assert names.kind("lamp", b'{"state":"ON"}') is Kind.UNKNOWN
    assert names.kind("lamp/set", b'{"state":"ON"}') is Kind.UNKNOWN
    assert names.kind("bridge/logging", b"{}") is Kind.STATE


@pytest.mark.guarantee(2)
def test_a_rename_changes_the_name_and_not_the_device() -> None:
    names = _names()
    assert (names.device("hall/door"), names.device("lamp")) == (DOOR, LAMP)
    learn(names, DEVICES, _list(lamp="0x00158d0000000001", light="0x00158d0000000002"))
    assert (names.device("lamp"), names.device("light"), names.device("hall/door")) == (DOOR, LAMP, None)


@pytest.mark.parametrize("payload", [b"", b"{}", b"[1]", b"[", b"[" * 100_000])
def test_a_list_that_is_none_changes_nothing(payload: bytes) -> None:
    names = _names()
    assert not learn(names, DEVICES, payload)
    assert names.device("lamp") == LAMP


def test_an_entry_without_name_or_address_is_passed_over() -> None:
    names = ZigbeeNames()
    entries = [{"friendly_name": "a"}, {"ieee_address": "0x00158d0000000001"}, {"friendly_name": 1}, {}]
    assert learn(names, DEVICES, json.dumps(entries).encode())
    assert names.device("a") is None


def test_a_topic_of_very_many_levels_takes_little_work() -> None:
    names = _names()
    with counted_calls() as calls:
        assert names.kind("/" * TOPIC_BYTES_MAX, b"on") is Kind.UNKNOWN
        assert names.kind("lamp" + "/" * TOPIC_BYTES_MAX, b"on") is Kind.STATE

    assert calls.count < 4 * NAME_CHARACTERS_MAX
