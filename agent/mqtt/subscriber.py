"""The MQTT subscriber: connects, subscribes, receives messages, and reconnects after every failure."""

from __future__ import annotations

import asyncio
import logging
from random import Random
from typing import Any

from agent.backoff import Backoff
from agent.config.settings import MqttSettings
from agent.delivery import Receive, Record
from agent.mqtt import client
from agent.mqtt.connection import Connection
from agent.mqtt.error import MqttError
from agent.mqtt.reception import Reception, ReceptionLimits
from agent.mqtt.routes import Routes
from agent.mqtt.zigbee_names import ZigbeeNames
from agent.telemetry.links import LinkName, Links, LinkState

_log = logging.getLogger(__name__)

RETRY_SECONDS_MAX = 30.0
STEADY_SECONDS = 60.0
"""After which a connection counts as good, even without a message."""
DRAIN_SECONDS_MAX = 5.0
CONNECTED = LinkState("connected", up=True)
DISCONNECTED = LinkState("disconnected", up=False, level=logging.WARNING, logs_each_reason=True)


class Subscriber:
    """Receives events from an MQTT broker; a message is acknowledged (PUBACK) only after its commit.

    The broker keeps the gateway's session and sends again what was not acknowledged.
    """

    def __init__(
        self,
        settings: MqttSettings,
        gateway: str,
        receive: Receive,
        record: Record,
        links: Links,
        random: Random,
        limits: ReceptionLimits | None = None,
    ) -> None:
        self._settings = settings
        self._gateway = gateway
        self._receive = receive
        self._record = record
        self._links = links
        self._limits = limits or ReceptionLimits()
        self._backoff = Backoff(random, seconds_max=RETRY_SECONDS_MAX)
        self._names = ZigbeeNames()

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
            connected = await asyncio.to_thread(
                client.connect, self._settings, self._gateway, self._limits.in_progress_max
            )
        except MqttError as error:
            self._report_down(str(error))
            return
        routes = Routes(self._settings, self._names)
        connection = Connection(connected, self._gateway, routes.filters(), self._report_up)
        reception = Reception(routes, self._receive, self._record, connection, self._limits)
        began = asyncio.get_running_loop().time()
        try:
            connection.open(reception.take)
            await self._wait_for_end(connection, reception, stopping)
        finally:
            reception.close()
            connection.close("closed")
            if not reception.refetches:
                self._names = ZigbeeNames()  # names may change while disconnected
        if reception.acknowledged or asyncio.get_running_loop().time() - began > STEADY_SECONDS:
            self._backoff.reset()

    async def _wait_for_end(self, connection: Connection, reception: Reception, stopping: asyncio.Task[bool]) -> None:
        """Wait until the connection ends, a message cannot be accepted now, or the agent stops."""
        ends: list[asyncio.Future[Any]] = [connection.ended, reception.ended, stopping]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if connection.ended.done():
            reason = connection.ended.result()
        else:
            reception.stop()
            await self._drain(reception)
            await connection.disconnect()
            reason = reception.ended.result() if reception.ended.done() else ""
        if reason:
            self._report_down(reason)
        if reception.lost:
            _log.warning("mqtt=lost messages=%d reason=%r", reception.lost, "they were sent at QoS 0")

    async def _drain(self, reception: Reception) -> None:
        try:
            async with asyncio.timeout(DRAIN_SECONDS_MAX):
                await reception.finished()
        except TimeoutError:
            _log.warning("mqtt=closed in_progress=%d effect=%r", reception.in_progress, "the broker sends them again")

    def _report_up(self) -> None:
        self._links.report(LinkName.MQTT, CONNECTED, broker=f"{self._settings.host}:{self._settings.port}")

    def _report_down(self, reason: str) -> None:
        self._links.report(LinkName.MQTT, DISCONNECTED, reason)
