"""The way in over MQTT as the agent sees it: connect, subscribe, take messages, and come back after every end."""

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
from agent.mqtt.reception import Reception, Tuning
from agent.mqtt.routes import Routes
from agent.mqtt.zigbee_names import ZigbeeNames
from agent.telemetry.links import LinkName, Links, LinkState

_log = logging.getLogger(__name__)

RETRY_SECONDS_MAX = 30.0
STEADY_SECONDS = 60.0
"""After which a connection counts as good, though it has brought nothing."""
DRAIN_SECONDS_MAX = 5.0
CONNECTED = LinkState("connected", up=True)
DISCONNECTED = LinkState("disconnected", up=False, level=logging.WARNING, logs_each_reason=True)


class Subscriber:
    """Receives events from an MQTT broker; a message is acknowledged (PUBACK) only after its commit.

    The broker keeps our session and sends again what was not acknowledged, whatever became of us.
    """

    def __init__(
        self,
        settings: MqttSettings,
        gateway: str,
        receive: Receive,
        record: Record,
        links: Links,
        random: Random,
        tuning: Tuning | None = None,
    ) -> None:
        self._settings = settings
        self._gateway = gateway
        self._receive = receive
        self._record = record
        self._links = links
        self._tuning = tuning or Tuning()
        self._backoff = Backoff(random, seconds_max=RETRY_SECONDS_MAX)
        self._names = ZigbeeNames()

    async def run(self, stop: asyncio.Event) -> None:
        """Take messages until told to stop; then finish what was taken."""
        stopping = asyncio.create_task(stop.wait(), name="mqtt-stop")
        try:
            while not stop.is_set():
                await self._connect_and_take(stopping)
                await asyncio.wait([stopping], timeout=self._backoff.next_seconds())
        finally:
            stopping.cancel()

    async def _connect_and_take(self, stopping: asyncio.Task[bool]) -> None:
        try:
            connected = await asyncio.to_thread(client.connect, self._settings, self._gateway, self._tuning.in_work_max)
        except MqttError as error:
            self._say_down(str(error))
            return
        routes = Routes(self._settings, self._names)
        connection = Connection(connected, self._gateway, routes.filters(), self._say_up)
        reception = Reception(routes, self._receive, self._record, connection, self._tuning)
        began = asyncio.get_running_loop().time()
        try:
            connection.open(reception.take)
            await self._until_over(connection, reception, stopping)
        finally:
            reception.close()
            connection.close("closed")
            if not reception.fetches_again:
                self._names = ZigbeeNames()  # while we are away, names may change, and nobody tells us
        if reception.acknowledged or asyncio.get_running_loop().time() - began > STEADY_SECONDS:
            self._backoff.reset()

    async def _until_over(self, connection: Connection, reception: Reception, stopping: asyncio.Task[bool]) -> None:
        """Wait for the first end: the broker's, a message that cannot be taken now, or our own."""
        ends: list[asyncio.Future[Any]] = [connection.ended, reception.over, stopping]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if connection.ended.done():
            reason = connection.ended.result()
        else:
            reception.stop()
            await self._drain(reception)
            await connection.leave()
            reason = reception.over.result() if reception.over.done() else ""
        if reason:
            self._say_down(reason)
        if reception.lost:
            _log.warning("mqtt=lost messages=%d reason=%r", reception.lost, "they came at QoS 0")

    async def _drain(self, reception: Reception) -> None:
        try:
            async with asyncio.timeout(DRAIN_SECONDS_MAX):
                await reception.finished()
        except TimeoutError:
            _log.warning("mqtt: left with messages in work; they come again")

    def _say_up(self) -> None:
        self._links.report(LinkName.MQTT, CONNECTED, broker=f"{self._settings.host}:{self._settings.port}")

    def _say_down(self, reason: str) -> None:
        self._links.report(LinkName.MQTT, DISCONNECTED, reason)
