"""Services that end by themselves and are started again, as their units say."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from simulators.display import Display
from simulators.errors import RunError
from simulators.judge.remote import Clock
from simulators.ledger import Ledger
from simulators.run import supervisor
from simulators.run.gateway import Gateway
from simulators.run.job import Job
from simulators.run.services import Services
from simulators.run.supervisor import Supervisor, Unit, supervised
from simulators.run.waiting import wait_for_job
from simulators.services.kafka.broker import Broker
from simulators.services.process import Process

SECONDS_MAX = 30.0
UNIT = "[Service]\nRestart=always\nRestartSec=0.01\nRestartPreventExitStatus=2\n"
ENDS_ONCE = "if [ -e ended ]; then echo runs; exec sleep 60; fi; touch ended; echo no answer; exit 1"
READS_ONCE_RESTARTED = (
    "if [ -e ended ]; then echo cloud.stream.progress query=1; exec sleep 60; fi; touch ended; exit 1"
)
POLL_SECONDS = 0.02


def test_services_are_restarted_as_their_units_say() -> None:
    assert Unit.read("oncegate.service") == Unit(1.0, frozenset())
    assert Unit.read("oncegate-cloud.service") == Unit(15.0, frozenset({2}))


@pytest.fixture
def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Services]:
    """Yield services of which the job is supervised and the others are down on purpose."""
    for name in ("oncegate.service", "oncegate-cloud.service"):
        (tmp_path / name).write_text(UNIT)
    monkeypatch.setattr(supervisor, "_UNITS", tmp_path)
    job = Job(tmp_path / "cloud", tmp_path / "job.log", "127.0.0.1:1")
    gateway = Gateway(tmp_path / "gateway-1", tmp_path / "agent.log", "127.0.0.1:1")
    down = {"kafka", "agent"}
    yield Services(Broker(tmp_path / "kafka"), [gateway], job, down=down, supervised=frozenset({"job"}))
    job.process.kill()


def _script(services: Services, text: str, folder: Path) -> Process:
    shell = ("sh", "-c", f"cd {folder} && {text}")
    services.job.process = Process(replace(services.job.process.command, arguments=shell))
    services.job.process.start()
    return services.job.process


async def test_a_supervised_job_that_ends_is_started_again_and_does_not_end_the_run(
    services: Services, tmp_path: Path
) -> None:
    process = _script(services, ENDS_ONCE, tmp_path)
    with Ledger(tmp_path / "ledger.jsonl", lambda: 0) as ledger:
        supervising = Supervisor(services, ledger, Display(Console(file=io.StringIO())))
        task = asyncio.create_task(supervising.run())
        try:
            async with asyncio.timeout(SECONDS_MAX):
                while "runs" not in process.log() or "job" in services.down:
                    assert services.unexpected_end() is None
                    await asyncio.sleep(POLL_SECONDS)
        finally:
            task.cancel()
    assert [(end.service, end.status, end.line) for end in supervising.ends] == [("job", 1, "no answer")]


async def test_a_supervised_job_that_must_not_be_started_again_ends_the_run(services: Services, tmp_path: Path) -> None:
    _script(services, "echo refused; exit 2", tmp_path)
    with (
        Ledger(tmp_path / "ledger.jsonl", lambda: 0) as ledger,
        pytest.RaisesGroup(pytest.RaisesExc(RunError, match=r"(?s)job: ended by itself with status 2.*refused")),
    ):
        async with asyncio.timeout(SECONDS_MAX):
            await Supervisor(services, ledger, Display(Console(file=io.StringIO()))).run()


async def test_a_job_that_ended_is_awaited_until_it_has_been_started_again_and_reads(
    services: Services, tmp_path: Path
) -> None:
    process = _script(services, READS_ONCE_RESTARTED, tmp_path)
    display = Display(Console(file=io.StringIO()))
    with Ledger(tmp_path / "ledger.jsonl", lambda: 0) as ledger:
        async with asyncio.timeout(SECONDS_MAX), supervised(services, {"job"}, ledger, display) as supervising:
            await wait_for_job(services)
    assert process.alive
    assert len(supervising.ends) == 1


async def test_a_job_that_never_reads_is_not_awaited_for_ever(services: Services, tmp_path: Path) -> None:
    _script(services, "exec sleep 60", tmp_path)
    times = iter(range(0, 100_000, 100))

    async def pass_over(_: float) -> None:
        await asyncio.sleep(0)

    with pytest.raises(RunError, match="does not read"):
        await wait_for_job(services, clock=Clock(lambda: float(next(times)), pass_over))
