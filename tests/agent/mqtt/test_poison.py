"""Malformed messages and floods: none blocks subscriber or event loop, ends the agent, or exhausts its memory."""

import asyncio
import gc
import json
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.config.subscriptions import Subscription
from agent.decode.decoded import REJECTED_BYTES_MAX
from agent.delivery import Media
from agent.mqtt.connection import READS_PER_TURN
from agent.mqtt.zigbee_names import LIST_BYTES_MAX
from agent.pace import TURN_SECONDS_MAX
from simulators.services.mosquitto import Mosquitto
from tests.agent.coap.stepped_loop import SteppedLoop
from tests.agent.mqtt.gateway import Recorder, begin_session, running
from tests.agent.mqtt.publisher import Publisher
from tests.agent.mqtt.raw_broker import PUBLISH, SUBACK, packet, publish, raw_broker
from tests.agent.mqtt.test_packets import PROPERTIES
from tests.support.loop_turns import LoopTurns
from tests.support.waiting import until, wait_until

EVENTS = (Subscription("plant/{device}/events", Media.JSON),)
TOPIC = b"plant/a/events"
DEVICES = json.dumps([{"friendly_name": "lamp", "ieee_address": "0x00124b0022ab3c4d"}]).encode()
HUGE_BYTES = 24 << 20
LAST = 65_535
"""A packet identifier that no other packet of a test uses."""


@pytest.mark.guarantee(6)
@pytest.mark.parametrize("version", ["5", "3.1.1"])
async def test_a_packet_that_is_no_message_is_recorded_and_acknowledged(version: str, recorder: Recorder) -> None:
    five = version == "5"
    none = b"" if five else None
    beyond = len(TOPIC).to_bytes(2, "big") + TOPIC + b"\0\2" + (b"\xff\x7f" if five else b"")
    async with raw_broker(version) as broker, running(recorder, broker.port, version=version, subscriptions=EVENTS):
        await broker.send(publish(b"", b"no topic", 1, properties=none))
        if five:
            await broker.send(packet(PUBLISH | 2, beyond))
        await broker.send(publish(b"plant/\xff/events", b"no text", 3, properties=none))
        await broker.send(packet(PUBLISH | 4, publish(TOPIC, b"twice", 4, properties=none)[2:]))
        await broker.send(packet(PUBLISH, b"\0"))
        await broker.send(publish(TOPIC, b"good", LAST, properties=PROPERTIES if five else None))
        await broker.until_acknowledged(LAST)
        assert broker.connections == 1
    assert broker.acknowledged == [1, *([2] if five else []), 3, LAST]
    assert recorder.bodies == [b"good"]
    assert [reason.removeprefix("not a valid message: ") for _, reason in recorder.recorded] == [
        "it has no topic",
        *(["it breaks off"] if five else []),
        "its topic is not UTF-8",
        "its QoS is none that was subscribed to",
        "it breaks off",
    ]
    assert recorder.recorded[0][0].body == b"no topic"


@pytest.mark.guarantee(6)
@pytest.mark.parametrize("version", ["5", "3.1.1"])
@settings(max_examples=40)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=60),
            st.builds(lambda text: len(text).to_bytes(2, "big") + text, st.binary(max_size=30)),
            st.builds(lambda rest: len(TOPIC).to_bytes(2, "big") + TOPIC + rest, st.binary(max_size=60)),
        ),
        max_size=12,
    ),
    st.lists(st.integers(PUBLISH, PUBLISH | 15), min_size=1, max_size=12),
)
async def test_no_publish_packet_closes_the_way_in(version: str, bodies: list[bytes], firsts: list[int]) -> None:
    packets = [packet(firsts[at % len(firsts)], body) for at, body in enumerate(bodies)]
    recorder = Recorder()
    none = b"" if version == "5" else None
    async with raw_broker(version) as broker, running(recorder, broker.port, version=version, subscriptions=EVENTS):
        await broker.send(b"".join(packets))
        await broker.send(publish(TOPIC, b"the last", LAST, properties=none))
        await broker.until_acknowledged(LAST)
        assert broker.connections == 1
    assert recorder.bodies[-1] == b"the last"


@pytest.mark.guarantee(6)
@pytest.mark.parametrize(
    ("version", "poison"),
    [
        ("5", packet(SUBACK, b"\0\1\0\x37")),  # an undefined reason code
        ("5", packet(SUBACK, b"\0\1\0\0\0\0\0\0")),  # more reasons than subscriptions
        ("5", packet(0xE0, b"\x55")),  # DISCONNECT
        ("5", packet(0x40, b"\0\1\x77")),  # PUBACK
        ("5", packet(0x20, b"\0\x66\0")),  # CONNACK
        ("3.1.1", packet(0x20, b"\0\x66")),
        ("3.1.1", packet(SUBACK, b"\0\1\x37")),
        ("3.1.1", b"\x30\xff\xff\xff\xff\xff"),  # an endless length
        ("3.1.1", b"\x90\xff\xff\xff\x7f" + bytes(40_000)),  # a SUBACK of 256 MB
        ("3.1.1", b"\0\0"),
    ],
)
async def test_other_packets_that_cannot_be_read_end_the_connection_and_not_the_agent(
    version: str, poison: bytes, caplog: pytest.LogCaptureFixture, recorder: Recorder
) -> None:
    none = b"" if version == "5" else None
    async with raw_broker(version) as broker, running(recorder, broker.port, version=version, subscriptions=EVENTS):
        await broker.send(poison)
        await broker.until_connected(2)
        await broker.send(publish(TOPIC, b"after", LAST, properties=none))
        await broker.until_acknowledged(LAST)
        gc.collect()  # paho closes its socket once more; pytest attributes an error of that to this test
    assert recorder.bodies == [b"after"]
    assert "mqtt=disconnected since=" in caplog.text


async def test_a_broker_is_asked_for_no_packet_that_would_not_be_kept_whole() -> None:
    async with raw_broker("5") as broker, running(Recorder(), broker.port, subscriptions=EVENTS):
        await broker.until_connected(1)
    maximum = broker.connect.index(b"\x27")  # Maximum Packet Size (MQTT 5 section 3.1.2.11.4)
    assert LIST_BYTES_MAX < int.from_bytes(broker.connect[maximum + 1 : maximum + 5], "big") < 2 * LIST_BYTES_MAX


@pytest.mark.guarantee(6)
@pytest.mark.parametrize("version", ["5", "3.1.1"])
async def test_a_message_beyond_all_bounds_is_recorded_from_its_beginning_and_not_kept(version: str) -> None:
    recorder = Recorder()
    none = b"" if version == "5" else None
    begin = publish(TOPIC, b"x" * HUGE_BYTES, 7, properties=none)
    async with raw_broker(version) as broker, running(recorder, broker.port, version=version, subscriptions=EVENTS):
        await broker.until_connected(1)
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        await broker.send(begin)
        await broker.send(publish(TOPIC, b"after", LAST, properties=none))
        await broker.until_acknowledged(LAST)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert broker.connections == 1
    assert peak - before < HUGE_BYTES / 8
    ((delivery, reason),) = recorder.recorded
    assert (delivery.sender, delivery.body) == ("a", b"x" * REJECTED_BYTES_MAX)
    assert reason == "larger than 65536 bytes (mqtt.max_body_bytes)"
    assert (broker.acknowledged, recorder.bodies) == ([7, LAST], [b"after"])


async def test_a_list_beyond_its_bound_is_passed_over_and_said(
    broker: Mosquitto, publisher: Publisher, caplog: pytest.LogCaptureFixture, recorder: Recorder
) -> None:
    await begin_session(recorder, publisher, broker.port)
    publisher.publish("zigbee2mqtt/bridge/devices", DEVICES + b" " * 100_000, retain=True)  # more than max_body_bytes
    publisher.publish("zigbee2mqtt/bridge/groups", b"[" + b" " * LIST_BYTES_MAX + b"]", retain=True)
    publisher.publish("zigbee2mqtt/lamp", b"{}")
    async with running(recorder, broker.port):
        await recorder.until(deliveries=1)
        await asyncio.to_thread(wait_until, lambda: "list=passed-over" in caplog.text, "the size of the list is logged")
    assert recorder.deliveries[0].sender == "urn:dev:mac:00124b0022ab3c4d"
    assert not recorder.recorded


@pytest.mark.guarantee(6)
async def test_a_message_whose_payload_lies_behind_endless_properties_is_not_taken_for_an_empty_one() -> None:
    recorder = Recorder()
    async with raw_broker("5") as broker, running(recorder, broker.port):
        await broker.send(publish(b"zigbee2mqtt/lamp", b'{"state":"ON"}', 1, properties=bytes(LIST_BYTES_MAX * 2)))
        await broker.until_acknowledged(1)
    ((delivery, reason),) = recorder.recorded
    assert delivery.sender == "mqtt:zigbee2mqtt/lamp"
    assert reason == "not a valid message: its properties are too long"


MESSAGE = publish(b"plant/a/events", b"1")


async def _most_in_a_turn(messages: int, seconds_each: float) -> int:
    with SteppedLoop() as clock:
        turns = LoopTurns()
        recorder = Recorder(work=turns.working(clock, seconds_each))
        async with raw_broker("5") as broker, running(recorder, broker.port, subscriptions=EVENTS):
            await broker.until_connected(1)
            with turns.counting():
                await broker.send(messages * MESSAGE)
                await until(lambda: turns.total == messages, "all are taken")
    return turns.most


@pytest.mark.guarantee(6)
async def test_readers_of_one_connection_do_not_multiply() -> None:
    assert await _most_in_a_turn(20_000, 0.0) <= READS_PER_TURN


@pytest.mark.guarantee(6)
async def test_slow_bodies_take_no_more_than_their_turn() -> None:
    assert await _most_in_a_turn(100, TURN_SECONDS_MAX / 2) <= 2
