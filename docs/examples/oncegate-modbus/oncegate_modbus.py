"""A way into Oncegate: polls holding registers over Modbus/TCP.

    [sources.modbus]
    host = "plc.local"
    device = "urn:dev:ser:plc-7"
    count = 4
    poll = "10s"

`oncegate` is on no index, where anybody could register that name: first `pip install .` in the checkout, then
`pip install docs/examples/oncegate-modbus`; on a gateway as docs/operations.md says (Other packages).

A reading's identity is its device, its block of registers (the event's type), their values, and its time, which is the
beginning of the interval of `poll` in which it was read. So a reading that is offered again because the store was full
is one event, and so are equal readings of one interval in which the agent is restarted; where the values have changed
meanwhile, there are two.

A poller has no sensor behind it that resends. A reading is safe once it is on the gateway's disk. One that was read,
and not yet written when the agent was killed, is read again only if the agent is back within the same interval: then
with the values of that moment. What the registers held while the agent or the connection was down is not known to
anybody. Nor is it known what changed between two polls. Without a trusted clock a reading has no time, and each is an
event.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.config import readers
from agent.config.settings import option
from agent.config.ways import WayIn
from agent.delivery import Answer, Delivery, Media, Status
from agent.opening import Opened, Opening
from agent.telemetry.links import LinkState

if TYPE_CHECKING:
    from agent.cli.doctor.finding import Finding
    from agent.config.settings import Settings

REGISTERS = 65_536
COUNT_MAX = 125
"""Registers of one answer."""
UNIT_MAX = 255
CONNECTED = LinkState("connected", up=True)
DISCONNECTED = LinkState("disconnected", up=False, level=logging.WARNING, logs_each_reason=True)
DOCTOR_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ModbusSettings:
    """Section [sources.modbus]."""

    host: str = option(readers.address, "name or address of the Modbus device")
    device: str = option(readers.text, "the device that the events name, such as urn:dev:ser:plc-7")
    port: int = option(readers.port, "its TCP port", default=502)
    unit: int = option(readers.count, "its unit id", default=1)
    first: int = option(readers.count, "the address of the first holding register", default=0)
    count: int = option(readers.positive, "how many registers are read", default=1)
    poll_seconds: float = option(readers.positive_duration, "interval of the polls", key="poll", default=10.0)

    def __post_init__(self) -> None:
        """Raise ValueError where no request could have these registers, which every poll would meet."""
        for key, value, most in (
            ("unit", self.unit, UNIT_MAX),
            ("first", self.first, REGISTERS - 1),
            ("count", self.count, min(COUNT_MAX, REGISTERS - self.first)),
        ):
            if value > most:
                raise ValueError(f"{key}: expected {most} at most; found {value}")


MODBUS = WayIn("modbus", "oncegate_modbus:open_modbus", settings=ModbusSettings, doctor="oncegate_modbus:check")


@asynccontextmanager
async def open_modbus(opening: Opening) -> AsyncIterator[Opened]:
    """Open the poller."""
    yield Opened(run=Poller(opening, opening.settings).run)


class Poller:
    """Reads one block of registers once in each interval."""

    def __init__(self, opening: Opening, settings: ModbusSettings) -> None:
        from pymodbus.client import AsyncModbusTcpClient

        self._opening = opening
        self._settings = settings
        self._client = AsyncModbusTcpClient(settings.host, port=settings.port, reconnect_delay=0)
        self._interval_ms = max(1, int(settings.poll_seconds * 1000))

    async def run(self, stop: asyncio.Event) -> None:
        """Poll until `stop` is set."""
        stopping = asyncio.create_task(stop.wait(), name="modbus-stop")
        try:
            while not stop.is_set():
                await self._poll(stopping)
                passed_ms = self._opening.clock.wall_ms() % self._interval_ms
                await asyncio.wait([stopping], timeout=(self._interval_ms - passed_ms) / 1000)
        finally:
            stopping.cancel()
            self._client.close()

    async def _poll(self, stopping: asyncio.Task[bool]) -> None:
        now = self._opening.now()
        try:
            registers = await self._read()
        except OSError as error:
            self._opening.links.report(self._opening.name, DISCONNECTED, str(error))
            return
        self._opening.links.report(self._opening.name, CONNECTED)
        event = {
            "device": self._settings.device,
            "type": f"holding-{self._settings.first}-{self._settings.count}",
            "time": None if now is None else now - now % self._interval_ms,
            "data": {"registers": registers},
        }
        body = json.dumps({key: value for key, value in event.items() if value is not None}).encode()
        while not stopping.done():
            answer = await self._deliver(body)
            if answer.status is not Status.UNAVAILABLE:  # else the store is full or fails: the reading is kept
                return
            await asyncio.wait([stopping], timeout=answer.retry_seconds)

    async def _read(self) -> list[int]:
        """Return the registers; raise OSError where the device does not give them."""
        from pymodbus import ModbusException

        settings = self._settings
        try:
            if not self._client.connected and not await self._client.connect():
                raise ConnectionError(f"{settings.host}:{settings.port} does not answer")
            found = await self._client.read_holding_registers(
                settings.first, count=settings.count, device_id=settings.unit
            )
        except (ModbusException, ValueError) as error:  # the latter also of a name that is no host's
            raise ConnectionError(str(error)) from error
        if found.isError():
            raise ConnectionError(f"{settings.host}:{settings.port} refuses: {found}")
        return list(found.registers)

    async def _deliver(self, body: bytes) -> Answer:
        """Return the pipeline's answer: durable only after the commit."""
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        sender = f"modbus://{self._settings.host}:{self._settings.port}"
        self._opening.receive(Delivery(body, Media.JSON, self._opening.name, sender), answered.set_result)
        return await answered


def check(settings: Settings, _now: int) -> Iterator[Finding]:
    """Check for `oncegate doctor` whether the device answers."""
    from agent.cli.doctor.finding import fine, wrong

    modbus: ModbusSettings = settings.sources["modbus"]
    try:
        with socket.create_connection((modbus.host, modbus.port), DOCTOR_SECONDS):
            yield fine("modbus", f"{modbus.host}:{modbus.port} answers")
    except (OSError, ValueError) as error:
        yield wrong("modbus", f"{modbus.host}:{modbus.port}: {error}", "correct sources.modbus.host and port")
