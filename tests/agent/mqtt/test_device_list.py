"""Lists of Zigbee2MQTT, parsed in pieces between other work of the event loop, and what they tell of a topic."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.config.subscriptions import TOPIC_BYTES_MAX
from agent.mqtt.packets import Message
from agent.mqtt.zigbee_names import (
    DEVICES,
    ENTRY_CHARACTERS_MAX,
    GROUPS,
    LIST_BYTES_MAX,
    NAME_CHARACTERS_MAX,
    DeviceListReader,
    Kind,
    ZigbeeNames,
    read_entries,
)
from agent.pace import TURN_SECONDS_MAX
from tests.agent.coap.stepped_loop import SteppedLoop
from tests.agent.mqtt.gateway import Recorder
from tests.agent.mqtt.test_pending import RecordingSource, learn, reception, take_list, zigbee
from tests.support.calls import counted_calls
from tests.support.waiting import until

ENTRIES = 1_000
CALLS_PER_ENTRY_MAX = 50
values = st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.lists(st.text(max_size=3), max_size=3)
objects = st.lists(st.dictionaries(st.text(max_size=9), values, max_size=4), max_size=4)


@given(objects, st.sampled_from([None, 0, 3]), st.sampled_from(["", " ", "\r\n\t "]))
def test_the_entries_are_those_of_the_json(entries: list[dict[str, object]], indent: int | None, around: str) -> None:
    text = around + json.dumps(entries, indent=indent, ensure_ascii=indent is None) + around
    assert list(read_entries(text)) == entries


@given(st.text(alphabet='[]{},": \n1a', max_size=30))
def test_what_is_no_list_of_objects_is_refused(text: str) -> None:
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if isinstance(document, list) and all(isinstance(entry, dict) for entry in document):
        assert list(read_entries(text)) == document
    else:
        with pytest.raises(ValueError):  # noqa: PT011  # json has no narrower one
            list(read_entries(text))


@pytest.mark.parametrize("length", [4_000, 30_000, ENTRY_CHARACTERS_MAX - 100, ENTRY_CHARACTERS_MAX + 1])
def test_an_entry_has_a_bounded_length(length: int) -> None:
    entries = [{"friendly_name": "a", "x": "x" * length}, {"friendly_name": "b"}]
    if length < ENTRY_CHARACTERS_MAX:
        assert list(read_entries(json.dumps(entries))) == entries
    else:
        with pytest.raises(ValueError, match="entry"):
            list(read_entries(json.dumps(entries)))


@pytest.mark.guarantee(6)
async def test_a_long_list_is_read_in_turns_and_what_comes_behind_it_waits() -> None:
    entries = [{"friendly_name": f"t{at}", "ieee_address": f"0x{at:016x}"} for at in range(ENTRIES)]
    payload = json.dumps(entries).encode()
    source, recorder = RecordingSource(), Recorder()
    taking = reception(source, recorder)
    taking.take(zigbee("t999", 1))
    turns = 0
    with SteppedLoop() as clock:
        loop = asyncio.get_running_loop()
        now = loop.time

        def later() -> float:
            clock.step(TURN_SECONDS_MAX / 10)
            return now()

        loop.time = later  # type: ignore[method-assign]
        taking.take(Message("zigbee2mqtt/bridge/devices", payload, len(payload)))
        while not source.reading:
            turns += 1
            await asyncio.sleep(0)
    assert ENTRIES / 10 <= turns <= ENTRIES
    assert recorder.deliveries[0].sender == "urn:dev:mac:00000000000003e7"
    taking.close()


@pytest.mark.guarantee(6)
@pytest.mark.parametrize("name", [DEVICES, GROUPS])
def test_what_a_list_holds_is_learned_as_it_is_read_and_not_all_at_its_end(name: str) -> None:
    entries = [{"friendly_name": f"{at:x}", "ieee_address": f"0x{at:016x}"} for at in range(60_000)]
    reading = DeviceListReader(ZigbeeNames().update, name, json.dumps(entries).encode())
    while True:
        with counted_calls() as calls:
            learned = reading.read(lambda: True)
        assert calls.count < CALLS_PER_ENTRY_MAX
        if learned is not None:
            break
    assert learned


async def test_a_list_that_cannot_be_read_is_told_once_in_a_connection(caplog: pytest.LogCaptureFixture) -> None:
    source, recorder = RecordingSource(), Recorder()
    taking = reception(source, recorder)
    for _ in range(2):
        for payload in (b"[1]", b""):
            await take_list(taking, source, Message("zigbee2mqtt/bridge/devices", payload, len(payload)))
    assert caplog.messages == ["list=unreadable topic=bridge/devices reason='an entry is no object'"]
    taking.close()


async def test_a_connection_that_ends_reads_no_list_to_its_end() -> None:
    source = RecordingSource()
    taking = reception(source, Recorder())
    payload = b"[" + b"{}," * (LIST_BYTES_MAX // 3 - 10) + b"{}]"
    taking.take(Message("zigbee2mqtt/bridge/devices", payload, len(payload)))
    assert not source.reading
    taking.stop()
    await until(lambda: source.reading, "the line is free")
    taking.close()


@pytest.mark.guarantee(6)
def test_a_message_takes_as_much_work_among_many_devices_as_among_few() -> None:
    names = ZigbeeNames()
    entries = [{"friendly_name": f"a{at}", "ieee_address": f"0x{at:016x}"} for at in range(30_000)]
    assert learn(names, DEVICES, json.dumps(entries).encode())
    with counted_calls() as calls:
        assert names.kind("foo/bar", b"on") is Kind.UNKNOWN
        assert names.kind("a29999/bar", b"on") is Kind.STATE

    assert calls.count < 100


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
