"""All services of the path on this machine: Kafka, agents, the Spark job with its table, mosquitto if needed."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from simulators.display import Display
from simulators.errors import RunError
from simulators.run.gateway import Gateway, GatewayOptions
from simulators.run.job import Job
from simulators.scenario import FaultKind, Scenario, SensorKind
from simulators.sensors.mapped_network import PRODUCTS
from simulators.services.kafka.broker import Broker
from simulators.services.mosquitto import Mosquitto
from simulators.services.service import ProcessService

_MARKER = ".oncegate-sim"
"""Marks a folder that a run may empty."""
AGENT_END_SECONDS_MAX = 45.0
"""TimeoutStopSec of the service unit; then the agent is killed."""


@dataclass(frozen=True, slots=True)
class Overrides:
    """How the services differ from the installed product: for mutants, and for the delivery of a soak."""

    delivery: str | None = None
    agent_patches: tuple[str, ...] = ()
    job_patches: tuple[str, ...] = ()


@dataclass(slots=True)
class Services:
    """The services under test, and the names of those that are down on purpose."""

    broker: Broker
    gateways: list[Gateway]
    job: Job
    mosquitto: Mosquitto | None = None
    down: set[str] = field(default_factory=set)
    supervised: frozenset[str] = frozenset()
    """The services that a Supervisor starts again; of the others, one that ends by itself ends the run."""

    @property
    def agents(self) -> dict[str, Gateway]:
        """The agents by the names that faults use."""
        return {"agent" if number == 1 else f"agent-{number}": one for number, one in enumerate(self.gateways, start=1)}

    @property
    def by_name(self) -> dict[str, ProcessService]:
        """All services by the names that faults and messages use."""
        named = {"kafka": self.broker, "job": self.job, "mosquitto": self.mosquitto}
        return {**self.agents, **{name: service for name, service in named.items() if service is not None}}

    def require_running(self) -> None:
        """Raise RunError with the end of the log where an unsupervised service has ended by itself."""
        for name, service in self.by_name.items():
            if name not in self.down | self.supervised and not service.process.alive:
                process = service.process
                raise RunError(f"{name}: ended by itself with status {process.exit_status}; {process.log_tail()}")

    def take_down(self, name: str) -> None:
        """Note that a service is down on purpose from now on; raise RunError where an unsupervised one has ended.

        The check comes first, since a service that is down on purpose is not checked any more.
        """
        self.require_running()
        self.down.add(name)

    def stop(self) -> None:
        """End job and agents; the broker stays readable. Raise RunError where an agent does not end with status 0."""
        self.down |= {"job", *self.agents}
        self.job.stop()
        for name, gateway in self.agents.items():
            if status := gateway.process.terminate(AGENT_END_SECONDS_MAX):
                raise RunError(f"{name}: ended with status {status} after SIGTERM; {gateway.process.log_tail()}")


def empty_folder(folder: Path) -> None:
    """Empty the folder; raise RunError where it holds something else than an earlier run."""
    if folder.exists():
        if any(folder.iterdir()) and not (folder / _MARKER).exists():
            raise RunError(f"{folder} holds something else than an earlier run: choose another --folder")
        shutil.rmtree(folder)
    (folder / "logs").mkdir(parents=True)
    (folder / _MARKER).touch()


@asynccontextmanager
async def started(scenario: Scenario, folder: Path, overrides: Overrides, display: Display) -> AsyncIterator[Services]:
    """Start all services; on leaving, kill all of them in the reverse order."""
    with ExitStack() as stack:
        display.phase("starting Kafka")
        broker = Broker(folder / "kafka")
        (folder / "logs" / "kafka.log").symlink_to(broker.log_file)
        await _start(stack, broker)
        await asyncio.to_thread(broker.create_topics)
        mosquitto: Mosquitto | None = None
        if any(plan.kind.protocol == "mqtt" for plan in scenario.fleets):
            mosquitto = Mosquitto(folder / "mosquitto")
            await _start(stack, mosquitto)
        display.phase("starting the Spark job and the agent")
        job = Job(folder / "cloud", folder / "logs" / "job.log", broker.bootstrap_servers, overrides.job_patches)
        await _start(stack, job)
        gateways: list[Gateway] = []
        for number in range(1, scenario.gateway.count + 1):
            chosen = _options(scenario, overrides, number, mosquitto)
            log_file = folder / "logs" / f"agent-{number}.log"
            gateways.append(Gateway(folder / f"gateway-{number}", log_file, broker.bootstrap_servers, chosen))
            if scenario.gateway.clock_offset_seconds:
                gateways[-1].set_clock(scenario.gateway.clock_offset_seconds)
            await _start(stack, gateways[-1])
        await asyncio.to_thread(job.wait)
        yield Services(broker, gateways, job, mosquitto)


async def _start(stack: ExitStack, service: ProcessService) -> None:
    stack.callback(service.close)
    await asyncio.to_thread(service.start)


def _options(scenario: Scenario, overrides: Overrides, number: int, mosquitto: Mosquitto | None) -> GatewayOptions:
    plan = scenario.gateway
    sets_clock = plan.clock_offset_seconds != 0 or any(fault.kind is FaultKind.CLOCK for fault in scenario.faults)
    return GatewayOptions(
        id=f"gw{number}",
        plan=plan,
        fake_clock=sets_clock,
        delivery=overrides.delivery,
        mqtt_port=None if mosquitto is None else mosquitto.port,
        mappings=PRODUCTS if any(fleet.kind is SensorKind.MAPPED for fleet in scenario.fleets) else {},
        patches=overrides.agent_patches,
    )
