"""The MQTT subscriber, with a pipeline whose answers the test decides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import TypedDict, Unpack

from agent.clock import SystemClock
from agent.config.settings import MqttSettings
from agent.config.subscriptions import Subscription
from agent.delivery import Answer, Delivery, Respond, Status
from agent.mqtt.reception import ReceptionLimits
from agent.mqtt.subscriber import Subscriber
from agent.telemetry.links import Links
from tests.agent.mqtt.publisher import Publisher
from tests.support.waiting import until_count, wait_until

GATEWAY = "gw-test"
DURABLE = Answer(Status.DURABLE, accepted=1)


class Options(TypedDict, total=False):
    """The fields of MqttSettings that tests vary."""

    version: str
    subscriptions: tuple[Subscription, ...]
    max_body_bytes: int
    base_topic: str
    username: str
    password_file: Path
    tls: bool
    tls_ca_file: Path
    tls_certificate_file: Path
    tls_key_file: Path


class Recorder:
    """Records deliveries and rejected messages; answers at once, or later."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self.recorded: list[tuple[Delivery, str]] = []
        self.answer: Answer | None = DURABLE
        self.open: list[Respond] = []

    def receive(self, delivery: Delivery, respond: Respond) -> None:
        self.deliveries.append(delivery)
        if self.answer is None:
            self.open.append(respond)
        else:
            respond(self.answer)

    def record(self, delivery: Delivery, reason: str, respond: Respond) -> None:
        self.recorded.append((delivery, reason))
        respond(DURABLE)

    @property
    def bodies(self) -> list[bytes]:
        return [delivery.body for delivery in self.deliveries]

    async def until(self, deliveries: int = 0, recorded: int = 0) -> None:
        """Wait for this number."""
        await until_count(lambda: len(self.deliveries), deliveries, "deliveries", or_more=True)
        await until_count(lambda: len(self.recorded), recorded, "recorded messages", or_more=True)


@asynccontextmanager
async def running(
    recorder: Recorder, port: int, limits: ReceptionLimits | None = None, **settings: Unpack[Options]
) -> AsyncIterator[asyncio.Event]:
    """Run the subscriber; the event stops it."""
    mqtt = MqttSettings(enabled=True, host="127.0.0.1", port=port, **settings)
    subscriber = Subscriber(mqtt, GATEWAY, recorder.receive, recorder.record, Links(SystemClock()), Random(1), limits)
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(subscriber.run(stop))
        try:
            yield stop
        finally:
            stop.set()


async def begin_session(recorder: Recorder, publisher: Publisher, port: int, **settings: Unpack[Options]) -> None:
    """Create our session at the broker, so that it keeps messages while the gateway is disconnected."""
    publisher.listen(f"oncegate/{GATEWAY}/state")
    async with running(recorder, port, **settings):
        await asyncio.to_thread(wait_for_state, publisher, b"online")
    await asyncio.to_thread(wait_for_state, publisher, b"offline")


def wait_for_state(publisher: Publisher, state: bytes) -> None:
    """Wait until the gateway publishes this state."""
    wait_until(lambda: publisher.received[-1:] == [(f"oncegate/{GATEWAY}/state", state)], f"the gateway is {state!r}")
