"""Messages that wait for a list of Zigbee2MQTT: how long, in how much memory, and which others they delay."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from dataclasses import replace

import pytest

from agent.config.settings import MqttSettings
from agent.config.subscriptions import TOPIC_BYTES_MAX, Subscription
from agent.delivery import Answer, Delivery, Media, Respond, Status
from agent.mqtt.packets import Message
from agent.mqtt.reception import Reception, ReceptionLimits
from agent.mqtt.routes import Routes
from agent.mqtt.zigbee_names import UNKNOWN_NAMES_MAX, DeviceListReader, ZigbeeNames
from agent.pace import TURN_SECONDS_MAX
from tests.agent.coap.stepped_loop import SteppedLoop
from tests.agent.mqtt.gateway import DURABLE, Recorder
from tests.support.loop_turns import LoopTurns
from tests.support.waiting import until

OWN = (Subscription("plant/{device}", Media.JSON),)
LIMITS = ReceptionLimits()
LAMP = "urn:dev:mac:00158d0000000001"


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
    source: RecordingSource, recorder: Recorder, limits: ReceptionLimits = LIMITS, names: ZigbeeNames | None = None
) -> Reception:
    routes = Routes(MqttSettings(subscriptions=OWN), names or ZigbeeNames())
    return Reception(routes, recorder.receive, recorder.record, source, limits)


def zigbee(name: str, message_id: int = 0, payload: bytes = b'{"a":1}') -> Message:
    return Message(f"zigbee2mqtt/{name}", payload, len(payload), message_id)


async def take_list(taking: Reception, source: RecordingSource, message: Message) -> None:
    """Have a list parsed, in all necessary turns of the loop."""
    taking.take(message)
    await until(lambda: source.reading, "the list is read")


def own(message_id: int) -> Message:
    return Message("plant/x", b"{}", 2, message_id)


def devices(**addresses: str) -> Message:
    entries = [{"friendly_name": name, "ieee_address": address} for name, address in addresses.items()]
    payload = json.dumps(entries).encode()
    return Message("zigbee2mqtt/bridge/devices", payload, len(payload))


LIST = devices(lamp="0x00158d0000000001")
GROUPS = replace(devices(all=""), topic="zigbee2mqtt/bridge/groups")


@pytest.mark.guarantee(6)
async def test_a_message_that_nobody_acknowledges_holds_up_no_acknowledgement() -> None:
    source, recorder = RecordingSource(), Recorder()
    taking = reception(source, recorder)
    taking.take(zigbee("stray"))
    for number in range(1, 3 * LIMITS.in_progress_max):
        taking.take(own(number))
    assert source.acknowledged == list(range(1, 3 * LIMITS.in_progress_max))
    taking.close()


@pytest.mark.guarantee(6)
async def test_without_any_list_a_message_is_recorded_after_a_while_and_the_rest_goes_on() -> None:
    source, recorder = RecordingSource(), Recorder()
    taking = reception(source, recorder)
    with SteppedLoop() as clock:
        taking.take(zigbee("stray", 1))
        taking.take(own(2))
        for _ in range(int(LIMITS.unlisted_seconds / LIMITS.unknown_seconds) - 1):
            await clock.advance(LIMITS.unknown_seconds)
        assert source.acknowledged == []
        await clock.advance(LIMITS.unknown_seconds)
        assert source.acknowledged == [1, 2]
        taking.take(zigbee("another", 3))
        taking.take(own(4))
        assert source.acknowledged == [1, 2, 3, 4]
        await take_list(taking, source, LIST)
        taking.take(zigbee("lamp", 5))
        taking.take(zigbee("joining", 6))
        assert source.acknowledged == [1, 2, 3, 4, 5]
    assert [(delivery.sender, reason) for delivery, reason in recorder.recorded] == [
        ("mqtt:zigbee2mqtt/stray", "no device list has arrived (zigbee2mqtt/bridge/devices)"),
        ("mqtt:zigbee2mqtt/another", "no device list has arrived (zigbee2mqtt/bridge/devices)"),
    ]
    assert recorder.deliveries[-1].sender == LAMP
    taking.close()


@pytest.mark.guarantee(6)
async def test_messages_passed_over_before_a_list_are_fetched_once_and_wait_for_none_again() -> None:
    source, recorder, names = RecordingSource(), Recorder(), ZigbeeNames()
    limits = ReceptionLimits(in_progress_max=4)
    taking = reception(source, recorder, limits, names)
    with SteppedLoop() as clock:
        for number in range(1, 9):
            taking.take(zigbee(f"stray{number}", number))
        for _ in range(int(limits.unlisted_seconds / limits.unknown_seconds)):
            await clock.advance(limits.unknown_seconds)
    assert source.acknowledged == [1, 2, 3, 4]
    assert (taking.ended.done(), taking.refetches) == (True, True)
    again = reception(source, recorder, limits, names)
    for number in range(5, 9):
        again.take(zigbee(f"stray{number}", number))
    assert source.acknowledged == list(range(1, 9))
    again.close()


@pytest.mark.guarantee(6)
async def test_lists_that_come_again_and_again_prolong_no_waiting() -> None:
    source, recorder = RecordingSource(), Recorder()
    taking = reception(source, recorder)
    with SteppedLoop() as clock:
        await take_list(taking, source, LIST)
        taking.take(zigbee("stray", 1))
        taking.take(zigbee("lamp", 2))
        for _ in range(4):
            await clock.advance(LIMITS.unknown_seconds / 4)
            await take_list(taking, source, LIST)
        await clock.advance(0.0)
        assert source.acknowledged == [1, 2]
    taking.close()


@pytest.mark.guarantee(6)
async def test_lists_of_groups_prolong_no_waiting_for_the_list_of_devices() -> None:
    source, recorder = RecordingSource(), Recorder()
    taking = reception(source, recorder)
    with SteppedLoop() as clock:
        taking.take(zigbee("stray", 1))
        taking.take(own(2))
        for _ in range(int(LIMITS.unlisted_seconds / LIMITS.unknown_seconds)):
            await clock.advance(LIMITS.unknown_seconds)
            await take_list(taking, source, GROUPS)
        await until(lambda: source.acknowledged == [1, 2], "nothing waits any more")
    taking.close()


@pytest.mark.guarantee(6)
async def test_large_messages_of_unknown_names_leave_room_for_those_of_known_devices() -> None:
    source, recorder = RecordingSource(), Recorder()
    taking = reception(source, recorder, names=_told())
    body = b"{}".ljust(MqttSettings().max_body_bytes)
    strays = LIMITS.in_progress_bytes_max // len(body) + 1
    for number in range(1, strays + 1):
        taking.take(zigbee(f"stray{number}", number, body))
    taking.take(zigbee("lamp", strays + 1))
    taking.take(zigbee("lamp"))
    assert [delivery.sender for delivery in recorder.deliveries] == [LAMP, LAMP]
    assert (taking.lost, taking.ended.done()) == (0, False)
    assert recorder.recorded[0][0].sender == "mqtt:zigbee2mqtt/stray1"
    taking.close()


async def test_a_single_message_waits_for_the_list_whatever_its_size() -> None:
    source, recorder = RecordingSource(), Recorder()
    taking = reception(source, recorder, ReceptionLimits(held_bytes_max=10), _told())
    taking.take(zigbee("joining", 1, b'{"temperature":21.5}'))
    await take_list(taking, source, devices(joining="0x00158d0000000001"))
    assert (source.acknowledged, recorder.recorded) == ([1], [])
    taking.close()


@pytest.mark.guarantee(6)
async def test_what_waited_for_a_list_is_taken_in_turns_of_the_loop_and_in_its_order() -> None:
    source, recorder = RecordingSource(), Recorder()
    taking = reception(source, recorder)
    with SteppedLoop() as clock:
        turns = LoopTurns()

        def slow(delivery: Delivery, respond: Respond) -> None:
            turns.note()
            clock.step(TURN_SECONDS_MAX / 2)
            recorder.deliveries.append(delivery)
            respond(DURABLE)

        recorder.receive = slow  # type: ignore[method-assign]
        taking = reception(source, recorder)
        for number in range(1, 41):
            taking.take(zigbee("lamp", number, b"%d" % number))
        taking.take(LIST)
        assert not source.reading
        with turns.counting():
            await until(lambda: source.reading, "all are taken")
    assert turns.most <= 2
    assert recorder.bodies == [b"%d" % number for number in range(1, 41)]
    assert source.acknowledged == list(range(1, 41))
    taking.close()


@pytest.mark.guarantee(6)
async def test_after_a_refusal_nothing_more_of_what_waited_is_taken() -> None:
    source, recorder = RecordingSource(), Recorder()
    recorder.answer = Answer(Status.UNAVAILABLE, reason="full")
    taking = reception(source, recorder)
    for number in range(1, 4):
        taking.take(zigbee("lamp", number))
    await take_list(taking, source, LIST)
    assert (len(recorder.deliveries), source.acknowledged) == (1, [])
    assert (taking.ended.result(), taking.refetches) == ("full", False)
    taking.close()


async def test_who_is_stopped_while_a_message_waits_keeps_no_names_for_the_next_connection() -> None:
    taking = reception(RecordingSource(), Recorder(), names=_told())
    with SteppedLoop() as clock:
        taking.take(zigbee("stray", 1))
        taking.stop()
        await clock.advance(LIMITS.unknown_seconds)
    assert not taking.refetches
    taking.close()


async def test_what_waited_for_the_first_list_then_waits_as_long_as_any_other() -> None:
    source, recorder = RecordingSource(), Recorder()
    taking = reception(source, recorder)
    with SteppedLoop() as clock:
        taking.take(zigbee("joining", 1))
        await clock.advance(LIMITS.unlisted_seconds / 2)
        await take_list(taking, source, LIST)
        await clock.advance(LIMITS.unknown_seconds / 2)
        await take_list(taking, source, devices(joining="0x00158d0000000001"))
        assert (source.acknowledged, recorder.recorded) == ([1], [])
    taking.close()


@pytest.mark.guarantee(6)
async def test_many_unknown_names_keep_no_known_device_waiting_for_each_of_them() -> None:
    source, recorder = RecordingSource(), Recorder()
    taking = reception(source, recorder)
    await take_list(taking, source, LIST)
    names = 2 * UNKNOWN_NAMES_MAX
    for number in range(1, 2 * names, 2):
        taking.take(zigbee(f"stray{number}", number))
        taking.take(zigbee("lamp", number + 1))
    assert source.acknowledged == list(range(1, 2 * (names - LIMITS.held_max) + 1))
    assert not taking.ended.done()
    taking.close()


@pytest.mark.guarantee(6)
async def test_what_waits_is_bounded_in_bytes_whatever_the_length_of_its_topic() -> None:
    for known in (ZigbeeNames(), _told()):
        source, recorder = RecordingSource(), Recorder()
        taking = reception(source, recorder, names=known)
        tracemalloc.start()
        for number in range(LIMITS.in_progress_max // 3):
            name = f"\U0001f600{number}"
            taking.take(zigbee(name.ljust(TOPIC_BYTES_MAX - len("zigbee2mqtt/") - 3, "a"), number + 1))
            taking.take(zigbee(name.ljust(900, "a")))
        recorder.recorded.clear()
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert used < 12 << 20
        taking.close()
        await asyncio.sleep(0)


def _told() -> ZigbeeNames:
    names = ZigbeeNames()
    learn(names, LIST.topic.removeprefix("zigbee2mqtt/"), LIST.payload)
    return names


def learn(names: ZigbeeNames, topic: str, payload: bytes) -> bool:
    """Whether the payload was a list."""
    return bool(DeviceListReader(names.update, topic, payload).read(lambda: False))
