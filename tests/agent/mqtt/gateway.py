"""The MQTT subscriber, with a pipeline whose answers the test decides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from agent.clock import SystemClock
from agent.config.settings import MqttSettings
from agent.delivery import Answer, Delivery, Respond, Status
from agent.mqtt.reception import ReceptionLimits
from agent.mqtt.session import BrokerSession, SessionKeeper, read_session
from agent.mqtt.subscriber import Subscriber
from agent.store.facts import MQTT_SESSION
from agent.telemetry.links import Links
from tests.agent import recorder
from tests.agent.mqtt.publisher import Publisher
from tests.support.memory_outbox import MemoryOutbox
from tests.support.waiting import until_count, wait_until

GATEWAY = "gw-test"


class Recorder(recorder.Recorder):
    """Records deliveries and rejected messages; answers at once, or later."""

    def __init__(self, before: Recorder | None = None, work: Callable[[], None] = lambda: None) -> None:
        """Create it for a new gateway, or for the next run of an earlier one."""
        super().__init__(work=work)
        self.recorded: list[tuple[Delivery, str]] = []
        self.outbox: MemoryOutbox = before.outbox if before else MemoryOutbox()
        """Of whose facts one is the session."""

    def session(self) -> BrokerSession:
        session = read_session(self.outbox.fact(MQTT_SESSION))
        assert session is not None
        return session

    def receive(self, delivery: Delivery, respond: Respond) -> None:
        if self.answer is None or self.answer.status in (Status.DURABLE, Status.UNAVAILABLE):
            self(delivery, respond)
        else:  # as the pipeline: what is refused for good is recorded
            self.deliveries.append(delivery)
            self.recorded.append((delivery, self.answer.reason))
            respond(Answer(Status.DURABLE, rejected=1, reason=self.answer.reason))

    def record(self, delivery: Delivery, reason: str, respond: Respond) -> None:
        self.recorded.append((delivery, reason))
        respond(recorder.DURABLE)

    @property
    def bodies(self) -> list[bytes]:
        return [delivery.body for delivery in self.deliveries]

    async def until(self, deliveries: int) -> None:
        await until_count(lambda: len(self.deliveries), deliveries, "deliveries", or_more=True)


@asynccontextmanager
async def running(
    recorder: Recorder, port: int, limits: ReceptionLimits | None = None, **settings: Any
) -> AsyncIterator[None]:
    """Run the subscriber."""
    mqtt = MqttSettings(enabled=True, host="127.0.0.1", port=port, **settings)
    clock = SystemClock()
    session = SessionKeeper(recorder.outbox, clock, GATEWAY, mqtt)
    subscriber = Subscriber(
        mqtt, session, recorder.receive, recorder.record, Links(clock), Random(1), limits or ReceptionLimits()
    )
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(subscriber.run(stop))
        try:
            yield
        finally:
            stop.set()


async def begin_session(recorder: Recorder, publisher: Publisher, port: int, **settings: Any) -> None:
    """Create our session at the broker, so that it keeps messages while the gateway is disconnected."""
    publisher.listen(f"oncegate/{GATEWAY}/state")
    async with running(recorder, port, **settings):
        await asyncio.to_thread(wait_for_state, publisher, b"online")
    await asyncio.to_thread(wait_for_state, publisher, b"offline")


def wait_for_state(publisher: Publisher, state: bytes) -> None:
    wait_until(lambda: publisher.received[-1:] == [(f"oncegate/{GATEWAY}/state", state)], f"the gateway is {state!r}")


def take_session(port: int, client_id: str) -> None:
    """Connect under this client id, acknowledge what waits there, and leave."""
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call] # paho's own omission
    properties.SessionExpiryInterval = 3_600
    stranger = Client(CallbackAPIVersion.VERSION2, client_id, protocol=MQTTProtocolVersion.MQTTv5)
    stranger.connect("127.0.0.1", port, clean_start=False, properties=properties)
    stranger.loop_start()
    wait_until(stranger.is_connected, "the stranger is connected")
    stranger.disconnect()
    stranger.loop_stop()
