"""Lists of Zigbee2MQTT, read between other work of the loop, and messages that wait for one and delay others."""

import asyncio
import gc
import json
import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.config.settings import MqttSettings
from agent.config.subscriptions import TOPIC_BYTES_MAX, Subscription
from agent.delivery import Answer, Media, Status
from agent.mqtt.packets import Message
from agent.mqtt.reception import Reception, ReceptionLimits
from agent.mqtt.routes import Routes
from agent.mqtt.zigbee_names import (
    DEVICES,
    ENTRY_CHARACTERS_MAX,
    GROUPS,
    LIST_BYTES_MAX,
    NAME_CHARACTERS_MAX,
    UNKNOWN_NAMES_MAX,
    Kind,
    ZigbeeNames,
    read_entries,
    read_list,
)
from agent.pace import TURN_SECONDS_MAX
from tests.agent.coap.stepped_loop import SteppedLoop
from tests.agent.mqtt.gateway import Recorder
from tests.support.calls import counted_calls
from tests.support.loop_turns import LoopTurns
from tests.support.waiting import until

OWN = (Subscription("plant/{device}", Media.JSON),)
LIMITS = ReceptionLimits()
DOOR, LAMP = "urn:dev:mac:00158d0000000001", "urn:dev:mac:00158d0000000002"


class RecordingSource:
    """The connection's side: records acknowledgements."""

    def __init__(self) -> None:
        self.acknowledged: list[int] = []
        self.reading = True

    def acknowledge(self, message_id: int) -> None:
        self.acknowledged.append(message_id)

    def pause(self) -> None:
        self.reading = False

    def resume(self) -> None:
        self.reading = True


def reception(
    limits: ReceptionLimits = LIMITS, names: ZigbeeNames | None = None, recorder: Recorder | None = None
) -> tuple[Reception, RecordingSource, Recorder]:
    source, recorder = RecordingSource(), recorder or Recorder()
    routes = Routes(MqttSettings(subscriptions=OWN), names or ZigbeeNames())
    return Reception(routes, recorder.receive, recorder.record, source, limits), source, recorder


def zigbee(name: str, message_id: int = 0, payload: bytes = b'{"a":1}') -> Message:
    return Message(f"zigbee2mqtt/{name}", payload, len(payload), message_id)


async def receive_list(receiving: Reception, source: RecordingSource, message: Message) -> None:
    """Have a list parsed, in all necessary turns of the loop."""
    receiving.receive(message)
    await until(lambda: source.reading, "the list is read")


def own(message_id: int) -> Message:
    return Message("plant/x", b"{}", 2, message_id)


def devices(**addresses: str) -> Message:
    entries = [{"friendly_name": name, "ieee_address": address} for name, address in addresses.items()]
    payload = json.dumps(entries).encode()
    return Message("zigbee2mqtt/bridge/devices", payload, len(payload))


LIST = devices(**{"hall/door": "0x00158d0000000001", "lamp": "0x00158D0000000002"})
GROUP_LIST = replace(devices(all=""), topic="zigbee2mqtt/bridge/groups")


@pytest.mark.guarantee(6)
async def test_a_message_that_nobody_acknowledges_holds_up_no_acknowledgement() -> None:
    receiving, source, _ = reception()
    receiving.receive(zigbee("stray"))
    for number in range(1, 3 * LIMITS.in_progress_max):
        receiving.receive(own(number))
    assert source.acknowledged == list(range(1, 3 * LIMITS.in_progress_max))


@pytest.mark.guarantee(6)
async def test_without_any_list_a_message_is_recorded_after_a_while_and_the_rest_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    receiving, source, recorder = reception()
    with SteppedLoop() as clock:
        receiving.receive(zigbee("stray", 1))
        receiving.receive(own(2))
        for _ in range(int(LIMITS.unlisted_seconds / LIMITS.unknown_seconds) - 1):
            await clock.advance(LIMITS.unknown_seconds)
        assert source.acknowledged == []
        await clock.advance(LIMITS.unknown_seconds)
        assert source.acknowledged == [1, 2]
        receiving.receive(zigbee("another", 3))
        receiving.receive(own(4))
        assert source.acknowledged == [1, 2, 3, 4]
        await receive_list(receiving, source, LIST)
        receiving.receive(zigbee("lamp", 5))
        receiving.receive(zigbee("joining", 6))
        assert source.acknowledged == [1, 2, 3, 4, 5]
    assert [(delivery.sender, reason) for delivery, reason in recorder.recorded] == [
        ("mqtt:zigbee2mqtt/stray", "no device list has arrived (zigbee2mqtt/bridge/devices)"),
        ("mqtt:zigbee2mqtt/another", "no device list has arrived (zigbee2mqtt/bridge/devices)"),
    ]
    assert recorder.deliveries[-1].sender == LAMP
    assert caplog.text.count("mqtt=waiting for=zigbee2mqtt/bridge/devices") == 1


@pytest.mark.guarantee(6)
async def test_messages_passed_over_before_a_list_are_fetched_once_and_wait_for_none_again() -> None:
    limits, names = ReceptionLimits(in_progress_max=4), ZigbeeNames()
    receiving, source, _ = reception(limits, names)
    with SteppedLoop() as clock:
        for number in range(1, 9):
            receiving.receive(zigbee(f"stray{number}", number))
        for _ in range(int(limits.unlisted_seconds / limits.unknown_seconds)):
            await clock.advance(limits.unknown_seconds)
    assert source.acknowledged == [1, 2, 3, 4]
    assert (receiving.ended.done(), receiving.refetches) == (True, True)
    again, source, _ = reception(limits, names)
    for number in range(5, 9):
        again.receive(zigbee(f"stray{number}", number))
    assert source.acknowledged == list(range(5, 9))


@pytest.mark.guarantee(6)
async def test_lists_that_come_again_and_again_prolong_no_waiting() -> None:
    receiving, source, _ = reception()
    with SteppedLoop() as clock:
        await receive_list(receiving, source, LIST)
        receiving.receive(zigbee("stray", 1))
        receiving.receive(zigbee("lamp", 2))
        for _ in range(4):
            await clock.advance(LIMITS.unknown_seconds / 4)
            await receive_list(receiving, source, LIST)
        await clock.advance(0.0)
        assert source.acknowledged == [1, 2]


@pytest.mark.guarantee(6)
async def test_lists_of_groups_prolong_no_waiting_for_the_list_of_devices() -> None:
    receiving, source, _ = reception()
    with SteppedLoop() as clock:
        receiving.receive(zigbee("stray", 1))
        receiving.receive(own(2))
        for _ in range(int(LIMITS.unlisted_seconds / LIMITS.unknown_seconds)):
            await clock.advance(LIMITS.unknown_seconds)
            await receive_list(receiving, source, GROUP_LIST)
        await until(lambda: source.acknowledged == [1, 2], "nothing waits any more")


@pytest.mark.guarantee(6)
async def test_large_messages_of_unknown_names_leave_room_for_those_of_known_devices() -> None:
    receiving, _, recorder = reception(names=_names())
    body = b"{}".ljust(MqttSettings().max_body_bytes)
    strays = LIMITS.in_progress_bytes_max // len(body) + 1
    for number in range(1, strays + 1):
        receiving.receive(zigbee(f"stray{number}", number, body))
    receiving.receive(zigbee("lamp", strays + 1))
    receiving.receive(zigbee("lamp"))
    assert [delivery.sender for delivery in recorder.deliveries] == [LAMP, LAMP]
    assert (receiving.lost, receiving.ended.done()) == (0, False)
    assert recorder.recorded[0][0].sender == "mqtt:zigbee2mqtt/stray1"


async def test_a_single_message_waits_for_the_list_whatever_its_size() -> None:
    receiving, source, recorder = reception(ReceptionLimits(waiting_bytes_max=10), _names())
    receiving.receive(zigbee("joining", 1, b'{"temperature":21.5}'))
    await receive_list(receiving, source, devices(joining="0x00158d0000000003"))
    assert (source.acknowledged, recorder.recorded) == ([1], [])


@pytest.mark.guarantee(6)
async def test_what_waited_for_a_list_is_taken_in_turns_of_the_loop_and_in_its_order() -> None:
    with SteppedLoop() as clock:
        turns = LoopTurns()
        recorder = Recorder(work=turns.working(clock, TURN_SECONDS_MAX / 2))
        receiving, source, _ = reception(recorder=recorder)
        for number in range(1, 41):
            receiving.receive(zigbee("lamp", number, b"%d" % number))
        receiving.receive(LIST)
        assert not source.reading
        with turns.counting():
            await until(lambda: source.reading, "all are taken")
    assert turns.most <= 2
    assert recorder.bodies == [b"%d" % number for number in range(1, 41)]
    assert source.acknowledged == list(range(1, 41))


@pytest.mark.guarantee(6)
async def test_after_a_refusal_nothing_more_of_what_waited_is_taken() -> None:
    receiving, source, recorder = reception()
    recorder.answer = Answer(Status.UNAVAILABLE, reason="full")
    for number in range(1, 4):
        receiving.receive(zigbee("lamp", number))
    await receive_list(receiving, source, LIST)
    assert (len(recorder.deliveries), source.acknowledged) == (1, [])
    assert (receiving.ended.result(), receiving.refetches) == ("full", False)


async def test_who_is_stopped_while_a_message_waits_keeps_no_names_for_the_next_connection() -> None:
    receiving, _, _ = reception(names=_names())
    with SteppedLoop() as clock:
        receiving.receive(zigbee("stray", 1))
        receiving.stop()
        await clock.advance(LIMITS.unknown_seconds)
    assert not receiving.refetches


async def test_what_waited_for_the_first_list_then_waits_as_long_as_any_other() -> None:
    receiving, source, recorder = reception()
    with SteppedLoop() as clock:
        receiving.receive(zigbee("joining", 1))
        await clock.advance(LIMITS.unlisted_seconds / 2)
        await receive_list(receiving, source, LIST)
        await clock.advance(LIMITS.unknown_seconds / 2)
        await receive_list(receiving, source, devices(joining="0x00158d0000000003"))
        assert (source.acknowledged, recorder.recorded) == ([1], [])


@pytest.mark.guarantee(6)
async def test_many_unknown_names_keep_no_known_device_waiting_for_each_of_them() -> None:
    receiving, source, _ = reception()
    await receive_list(receiving, source, LIST)
    names = 2 * UNKNOWN_NAMES_MAX
    for number in range(1, 2 * names, 2):
        receiving.receive(zigbee(f"stray{number}", number))
        receiving.receive(zigbee("lamp", number + 1))
    assert source.acknowledged == list(range(1, 2 * (names - LIMITS.waiting_max) + 1))
    assert not receiving.ended.done()


@pytest.mark.guarantee(6)
async def test_what_waits_is_bounded_in_bytes_whatever_the_length_of_its_topic() -> None:
    for known in (ZigbeeNames(), _names()):
        receiving, _, recorder = reception(names=known)
        tracemalloc.start()
        for number in range(LIMITS.in_progress_max // 3):
            name = f"\U0001f600{number}"
            receiving.receive(zigbee(name.ljust(TOPIC_BYTES_MAX - len("zigbee2mqtt/") - 3, "a"), number + 1))
            receiving.receive(zigbee(name.ljust(900, "a")))
        recorder.recorded.clear()
        gc.collect()  # seldom runs by itself in a process with much memory
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert used < 12 << 20
        await asyncio.sleep(0)


def learn(names: ZigbeeNames, topic: str, payload: bytes) -> bool:
    """Whether the payload was a list."""
    try:
        list(read_list(names, topic, payload))
    except (ValueError, RecursionError):
        return False
    return True


ENTRIES = 2_000
"""More bytes than a message of a device may have (`mqtt.max_body_bytes`)."""
CALLS_PER_ENTRY_MAX = 50
values = st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.lists(st.text(max_size=3), max_size=3)
objects = st.lists(st.dictionaries(st.text(max_size=9), values, max_size=4), max_size=4)


@given(objects, st.sampled_from([None, 0, 3]), st.sampled_from(["", " ", "\r\n\t "]))
def test_the_entries_are_those_of_the_json(entries: list[dict[str, object]], indent: int | None, around: str) -> None:
    text = around + json.dumps(entries, indent=indent, ensure_ascii=indent is None) + around
    assert list(read_entries(text.encode())) == entries


@given(st.text(alphabet='[]{},": \n1a', max_size=30))
def test_what_is_no_list_of_objects_is_refused(text: str) -> None:
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if isinstance(document, list) and all(isinstance(entry, dict) for entry in document):
        assert list(read_entries(text.encode())) == document
    else:
        with pytest.raises(ValueError):  # noqa: PT011  # json has no narrower one
            list(read_entries(text.encode()))


@pytest.mark.parametrize("length", [4_000, 30_000, ENTRY_CHARACTERS_MAX - 100, ENTRY_CHARACTERS_MAX + 1])
def test_an_entry_has_a_bounded_length(length: int) -> None:
    entries = [{"friendly_name": "a", "x": "x" * length}, {"friendly_name": "b"}]
    if length < ENTRY_CHARACTERS_MAX:
        assert list(read_entries(json.dumps(entries).encode())) == entries
    else:
        with pytest.raises(ValueError, match="entry"):
            list(read_entries(json.dumps(entries).encode()))


@pytest.mark.guarantee(6)
async def test_a_long_list_is_read_in_turns_and_what_comes_behind_it_waits() -> None:
    entries = [{"friendly_name": f"t{at}", "ieee_address": f"0x{at:016x}"} for at in range(ENTRIES)]
    payload = json.dumps(entries).encode()
    receiving, source, recorder = reception()
    receiving.receive(zigbee("t999", 1))
    turns = 0
    with SteppedLoop() as clock:
        loop = asyncio.get_running_loop()
        now = loop.time

        def later() -> float:
            clock.step(TURN_SECONDS_MAX / 10)
            return now()

        loop.time = later  # type: ignore[method-assign]
        receiving.receive(Message("zigbee2mqtt/bridge/devices", payload, len(payload)))
        while not source.reading:
            turns += 1
            await asyncio.sleep(0)
    assert ENTRIES / 10 <= turns <= ENTRIES
    assert recorder.deliveries[0].sender == "urn:dev:mac:00000000000003e7"


@pytest.mark.guarantee(6)
@pytest.mark.parametrize("name", [DEVICES, GROUPS])
def test_what_a_list_holds_is_learned_as_it_is_read_and_not_all_at_its_end(name: str) -> None:
    entries = [{"friendly_name": f"{at:x}", "ieee_address": f"0x{at:016x}"} for at in range(60_000)]
    reading, is_read = read_list(ZigbeeNames(), name, json.dumps(entries).encode()), False
    while not is_read:
        with counted_calls() as calls:
            is_read = next(reading, "at its end") is not None
        assert calls.count < CALLS_PER_ENTRY_MAX


async def test_a_list_that_cannot_be_read_is_told_once_in_a_connection(caplog: pytest.LogCaptureFixture) -> None:
    receiving, source, _ = reception()
    for _ in range(2):
        for payload in (b"[1]", b""):
            await receive_list(receiving, source, Message("zigbee2mqtt/bridge/devices", payload, len(payload)))
    assert caplog.messages == ["list=unreadable topic=bridge/devices reason='an entry is no object'"]


async def test_a_connection_that_ends_reads_no_list_to_its_end() -> None:
    receiving, source, _ = reception()
    payload = b"[" + b"{}," * (LIST_BYTES_MAX // 3 - 10) + b"{}]"
    receiving.receive(Message("zigbee2mqtt/bridge/devices", payload, len(payload)))
    assert not source.reading
    receiving.stop()
    await until(lambda: source.reading, "the line is free")


@pytest.mark.guarantee(6)
def test_a_message_takes_as_much_work_among_many_devices_as_among_few() -> None:
    names = ZigbeeNames()
    entries = [{"friendly_name": f"a{at}", "ieee_address": f"0x{at:016x}"} for at in range(30_000)]
    assert learn(names, DEVICES, json.dumps(entries).encode())
    with counted_calls() as calls:
        assert names.kind("foo/bar", b"on") is Kind.UNKNOWN
        assert names.kind("a29999/bar", b"on") is Kind.STATE

    assert calls.count < 100


def _names() -> ZigbeeNames:
    names = ZigbeeNames()
    assert learn(names, DEVICES, LIST.payload)
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
    learn(names, DEVICES, devices(lamp="0x00158d0000000001", light="0x00158d0000000002").payload)
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
