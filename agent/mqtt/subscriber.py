"""The MQTT subscriber: connects, subscribes, receives messages, and reconnects after every failure."""

import asyncio
import logging
from dataclasses import dataclass, field
from random import Random
from typing import Any

from paho.mqtt.client import Client

from agent.backoff import Backoff
from agent.config.settings import MqttSettings
from agent.delivery import Receive, Record
from agent.mqtt import client
from agent.mqtt.connection import Connection
from agent.mqtt.packets import MqttError
from agent.mqtt.reception import Reception, ReceptionLimits
from agent.mqtt.routes import Routes
from agent.mqtt.session import SessionKeeper
from agent.mqtt.zigbee_names import ZigbeeNames
from agent.store.port import OutboxError
from agent.telemetry.links import LinkName, Links, LinkState

_log = logging.getLogger(__name__)

RETRY_SECONDS_MAX = 30.0
STEADY_SECONDS = 60.0
"""After which a connection counts as good, even without a message."""
DRAIN_SECONDS_MAX = 5.0
CONNECTED = LinkState("connected", up=True)
DISCONNECTED = LinkState("disconnected", up=False, level=logging.WARNING, logs_each_reason=True)


@dataclass(eq=False)
class Subscriber:
    """Receives events from an MQTT broker; a message is acknowledged (PUBACK) only after its commit.

    The broker keeps the gateway's session and sends again what was not acknowledged.
    """

    settings: MqttSettings
    session: SessionKeeper
    receive: Receive
    record: Record
    links: Links
    random: Random
    limits: ReceptionLimits = field(default_factory=ReceptionLimits)

    def __post_init__(self) -> None:
        self._backoff = Backoff(self.random, seconds_max=RETRY_SECONDS_MAX)
        self._routes = Routes(self.settings, ZigbeeNames())

    async def run(self, stop: asyncio.Event) -> None:
        """Receive messages until `stop` is set; then finish those in progress."""
        stopping = asyncio.create_task(stop.wait(), name="mqtt-stop")
        try:
            while not stop.is_set():
                await self._run_connection(stopping)
                await asyncio.wait([stopping], timeout=self._backoff.next_seconds())
        finally:
            stopping.cancel()

    async def _run_connection(self, stopping: asyncio.Task[bool]) -> None:
        try:
            connected = await asyncio.to_thread(self._connect)
        except (MqttError, OutboxError) as error:
            self.links.report(LinkName.MQTT, DISCONNECTED, str(error))
            return
        connection = Connection(connected, self.session.gateway, self._routes.filters())
        reception = Reception(self._routes, self.receive, self.record, connection, self.limits)
        began = asyncio.get_running_loop().time()
        reporting = asyncio.create_task(self._report_up(connection), name="mqtt-session")
        try:
            connection.open(reception.receive)
            broken = await self._wait_for_end(connection, reception, stopping)
        finally:
            reception.close()
            connection.close("closed")
            if not reception.refetches:
                self._routes.names = ZigbeeNames()  # names may change while disconnected
            if not connection.subscribed.done():
                reporting.cancel()
            await asyncio.wait([reporting])
        if not reporting.cancelled():
            reporting.result()
        # Of two agents with one session, each ends the other's connections, also those that bring messages.
        if (reception.acks.acknowledged and not broken) or asyncio.get_running_loop().time() - began > STEADY_SECONDS:
            self._backoff.reset()

    def _connect(self) -> Client:
        return client.connect(
            self.settings, self.session.gateway, self.session.client_id(), self.limits.in_progress_max
        )

    async def _wait_for_end(self, connection: Connection, reception: Reception, stopping: asyncio.Task[bool]) -> bool:
        """Wait for the connection's end, a message that cannot be accepted now, or `stop`; return whether it broke."""
        ends: list[asyncio.Future[Any]] = [connection.ended, reception.ended, stopping]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if broken := connection.ended.done():
            reason = connection.ended.result()
        else:
            reception.stop()
            await self._drain(reception)
            await connection.disconnect()
            reason = reception.ended.result() if reception.ended.done() else ""
        if reason:
            self.links.report(LinkName.MQTT, DISCONNECTED, reason)
        if reception.lost:
            _log.warning("mqtt=lost messages=%d reason=%r", reception.lost, "they were sent at QoS 0")
        return broken

    async def _drain(self, reception: Reception) -> None:
        try:
            async with asyncio.timeout(DRAIN_SECONDS_MAX):
                await reception.idle.wait()
        except TimeoutError:
            _log.warning("mqtt=closed in_progress=%d effect=%r", len(reception.acks), "the broker sends them again")

    async def _report_up(self, connection: Connection) -> None:
        """Report the connection once messages can arrive, and note whether the broker still had the session."""
        present = await connection.subscribed
        self.links.report(LinkName.MQTT, CONNECTED, broker=self.session.broker)
        try:
            await asyncio.to_thread(self.session.note, present=present)
        except OutboxError as error:
            _log.warning("mqtt=connected note=failed reason=%r", str(error))
