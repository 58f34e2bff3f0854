"""All services of the path on this machine: Kafka, agents, the Spark job with its table, mosquitto if needed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from simulators.display import Display
from simulators.errors import RunError
from simulators.run.gateway import Gateway, GatewayOptions
from simulators.run.job import Job
from simulators.scenario import FaultKind, Scenario, SensorKind
from simulators.sensors.field import Source
from simulators.services.kafka import Broker
from simulators.services.mosquitto import Mosquitto
from simulators.services.process import Process
from simulators.services.zigbee2mqtt import Zigbee2Mqtt

LOG_TAIL_LINES = 25
AGENT_END_SECONDS_MAX = 45.0
"""As long as its service unit waits (TimeoutStopSec); then it is killed."""


@dataclass(frozen=True, slots=True)
class Overrides:
    """How the services differ from what is installed: for mutants, and for `compare`."""

    delivery: str | None = None
    agent_patches: tuple[str, ...] = ()
    job_patches: tuple[str, ...] = ()


@dataclass(slots=True)
class Services:
    """The services under test, and which of them are down because they shall be."""

    broker: Broker
    gateways: list[Gateway]
    job: Job
    mosquitto: Mosquitto | None = None
    zigbee2mqtt: Zigbee2Mqtt | None = None
    down: set[str] = field(default_factory=set)

    @property
    def agents(self) -> dict[str, Gateway]:
        """Return the agents by the names that faults have for them."""
        return {"agent" if number == 1 else f"agent-{number}": one for number, one in enumerate(self.gateways, start=1)}

    @property
    def source(self) -> Source | None:
        """Return the Zigbee2MQTT as sensors see it."""
        if self.zigbee2mqtt is None or self.mosquitto is None:
            return None
        return Source(("127.0.0.1", self.mosquitto.port), self.zigbee2mqtt.devices, self.zigbee2mqtt.report)

    def dead(self) -> str | None:
        """Name a part that has ended by itself, with the end of its log."""
        processes = {name: gateway.process for name, gateway in self.agents.items()}
        processes |= {"kafka": self.broker.process, "job": self.job.process}
        if self.mosquitto is not None:
            processes["mosquitto"] = self.mosquitto.process
        if self.zigbee2mqtt is not None:
            processes["zigbee2mqtt"] = self.zigbee2mqtt.process
        for name, process in processes.items():
            if name not in self.down and not process.alive:
                return (
                    f"{name}: ended by itself with status {process.exit_status}; the end of its log:\n{_tail(process)}"
                )
        return None

    def take_down(self, name: str) -> None:
        """Note that a part shall be down from now on; raise RunError where one has ended by itself before.

        A fault would hide that: nobody looks for a part that shall be down.
        """
        if (dead := self.dead()) is not None:
            raise RunError(dead)
        self.down.add(name)

    def stop(self) -> None:
        """End job and agents; the broker stays, to be read. Raise RunError where an agent does not end as it should."""
        self.down |= {"job", *self.agents}
        self.job.process.terminate()
        for name, gateway in self.agents.items():
            if status := gateway.process.terminate(AGENT_END_SECONDS_MAX):
                end = f"the end of its log:\n{_tail(gateway.process)}"
                raise RunError(f"{name}: ended with status {status} when it was asked to; {end}")


@asynccontextmanager
async def started(scenario: Scenario, folder: Path, overrides: Overrides, display: Display) -> AsyncIterator[Services]:
    """Start all services; on the way out none is left."""
    logs = folder / "logs"
    broker = Broker(folder / "kafka")
    (logs / "kafka.log").symlink_to(broker.log_file)
    has_mqtt = any(plan.sort in (SensorKind.ZIGBEE, SensorKind.ZIGBEE2MQTT) for plan in scenario.fleets)
    mosquitto = Mosquitto(folder / "mosquitto") if has_mqtt else None
    thermometers = sum(plan.sensors for plan in scenario.fleets if plan.sort is SensorKind.ZIGBEE2MQTT)
    zigbee2mqtt: Zigbee2Mqtt | None = None
    try:
        display.phase("starting Kafka")
        await asyncio.to_thread(broker.start)
        await asyncio.to_thread(broker.create_topics)
        if mosquitto is not None:
            await asyncio.to_thread(mosquitto.start)
        gateways = [
            Gateway(
                folder / f"gateway-{number}",
                logs / f"agent-{number}.log",
                broker.bootstrap_servers,
                _options(scenario, overrides, number, mosquitto),
            )
            for number in range(1, scenario.gateway.count + 1)
        ]
        job = Job(folder / "cloud", logs / "job.log", broker.bootstrap_servers, overrides.job_patches)
        try:
            display.phase("starting the Spark job and the agent")
            await asyncio.to_thread(job.start)
            for gateway in gateways:
                if scenario.gateway.clock_offset_seconds:
                    gateway.set_clock(scenario.gateway.clock_offset_seconds)
                await asyncio.to_thread(gateway.start)
            await asyncio.to_thread(job.wait)
            if mosquitto is not None and thermometers:
                display.phase("starting Zigbee2MQTT (the first time npm fetches it, about 200 MB)")
                zigbee2mqtt = await asyncio.to_thread(
                    Zigbee2Mqtt, folder / "zigbee2mqtt", mosquitto.port, devices=thermometers, reports=thermometers
                )
                await asyncio.to_thread(zigbee2mqtt.start)
            yield Services(broker, gateways, job, mosquitto, zigbee2mqtt)
        finally:
            if zigbee2mqtt is not None:
                zigbee2mqtt.process.kill()
            for gateway in gateways:
                gateway.process.kill()
            job.process.kill()
    finally:
        if mosquitto is not None:
            mosquitto.kill()
        broker.kill()


def _options(scenario: Scenario, overrides: Overrides, number: int, mosquitto: Mosquitto | None) -> GatewayOptions:
    plan = scenario.gateway
    sets_clock = plan.clock_offset_seconds != 0 or any(fault.what is FaultKind.CLOCK for fault in scenario.faults)
    return GatewayOptions(
        id=f"gw{number}",
        clock=plan.clock,
        fake_clock=sets_clock,
        store_max_bytes=plan.store_max_bytes,
        delivery=overrides.delivery,
        mqtt_port=None if mosquitto is None else mosquitto.port,
        patches=overrides.agent_patches,
    )


def _tail(process: Process) -> str:
    return "\n".join(f"  {line}" for line in process.log().splitlines()[-LOG_TAIL_LINES:])
