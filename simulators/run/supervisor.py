"""Starts services that end by themselves again, as systemd does with the units of agent and job."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from simulators.display import Display
from simulators.errors import RunError
from simulators.ledger import Ledger
from simulators.run.services import Services
from simulators.services.error import ServiceError
from simulators.services.service import ProcessService

POLL_SECONDS = 0.2
LINE_LENGTH_MAX = 300
_UNITS = Path(__file__).resolve().parents[2] / "systemd"


@dataclass(frozen=True, slots=True)
class Unit:
    """What a unit says about restarts."""

    restart_seconds: float
    final_statuses: Collection[int]
    """The exit statuses after which the service is not started again."""

    @staticmethod
    def read(name: str) -> Unit:
        """Read a unit of this checkout; raise RunError where it does not restart its service."""
        entries = dict(re.findall(r"^(\w+)=(.*)$", (_UNITS / name).read_text(), re.MULTILINE))
        if entries.get("Restart") != "always":
            raise RunError(f"{name} does not restart its service")
        final = entries.get("RestartPreventExitStatus", "").split()
        return Unit(float(entries["RestartSec"]), frozenset(map(int, final)))


@dataclass(frozen=True, slots=True)
class SelfEnd:
    """A service that ended by itself."""

    service: str
    status: int | None
    line: str
    """The last line of its log."""


class Supervisor:
    """Restarts the supervised services that have a unit; no other service must end by itself."""

    def __init__(self, services: Services, ledger: Ledger, display: Display) -> None:
        self.ends: list[SelfEnd] = []
        self._services = services
        self._ledger = ledger
        self._display = display
        units = {"oncegate.service": [*services.agents], "oncegate-cloud.service": ["job"]}
        self._units = {service: Unit.read(unit) for unit, named in units.items() for service in named}

    async def run(self) -> None:
        """Restart services until cancelled; raise RunError where one must not be started again."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._services.require_running()
                for name, service in self._services.by_name.items():
                    ended = name not in self._services.down and not service.process.alive
                    if ended and name in self._services.supervised:
                        self._services.down.add(name)
                        tasks.create_task(self._restart(name, service))
                await asyncio.sleep(POLL_SECONDS)

    async def _restart(self, name: str, service: ProcessService) -> None:
        while True:
            process = service.process
            end = SelfEnd(name, process.exit_status, process.log().rstrip().rpartition("\n")[2][:LINE_LENGTH_MAX])
            self.ends.append(end)
            self._ledger.happened(name, f"ended by itself with status {end.status}")
            self._display.fact(f"{name}: ended by itself with status {end.status}: {end.line}")
            if name not in self._units or end.status in self._units[name].final_statuses:
                raise RunError(f"{name}: ended by itself with status {end.status}; {process.log_tail()}")
            await asyncio.sleep(self._units[name].restart_seconds)
            try:
                await asyncio.to_thread(service.start)
            except ServiceError:
                if process.alive:
                    raise
                continue
            self._services.down.discard(name)
            return


@asynccontextmanager
async def supervised(
    services: Services, names: Collection[str], ledger: Ledger, display: Display
) -> AsyncIterator[Supervisor]:
    """Supervise the services with these names, and watch the others, until the block ends.

    Cancel the block, and raise an ExceptionGroup with a RunError, where one has ended that is not to be started again.
    """
    services.supervised = frozenset(names)
    supervisor = Supervisor(services, ledger, display)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(supervisor.run(), name="supervisor")
        yield supervisor
        task.cancel()
