"""Services that end by themselves: noticed even where a fault follows, and started again as their units say."""

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
from simulators.run import faults, supervisor
from simulators.run.gateway import Gateway
from simulators.run.job import Job
from simulators.run.play import Reports
from simulators.run.services import Services
from simulators.run.supervisor import Supervisor, supervised
from simulators.run.waiting import wait_for_job
from simulators.scenario import Fault, FaultKind, FaultTarget
from simulators.services.kafka.broker import Broker
from simulators.services.mosquitto import Mosquitto
from simulators.services.process import Command, Process
from tests.support.waiting import until

SECONDS_MAX = 30.0
UNIT = "[Service]\nRestart=always\nRestartSec=0.01\nRestartPreventExitStatus=2\n"
READS_ONCE_RESTARTED = (
    "if [ -e ended ]; then echo cloud.stream.progress query=1; exec sleep 60; fi; touch ended; echo no answer; exit 1"
)
SILENT = Display(Console(file=io.StringIO()))


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "ledger.jsonl", lambda: 0) as opened:
        yield opened


def error(text: str) -> pytest.RaisesGroup[RunError]:
    """Expect a group with this error alone."""
    return pytest.RaisesGroup(pytest.RaisesExc(RunError, match=f"(?s){text}"))


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


def _script(services: Services, text: str, folder: Path) -> None:
    shell = ("sh", "-c", f"cd {folder} && {text}")
    services.job.process = Process(replace(services.job.process.command, arguments=shell))
    services.job.process.start()


async def test_a_supervised_job_that_must_not_be_started_again_ends_the_run(
    services: Services, ledger: Ledger, tmp_path: Path
) -> None:
    _script(services, "echo refused; exit 2", tmp_path)
    with error(r"job: ended by itself with status 2.*refused"):
        await Supervisor(services, ledger, SILENT).run()


async def test_a_job_that_ends_is_started_again_and_awaited_until_it_reads_and_does_not_end_the_run(
    services: Services, ledger: Ledger, tmp_path: Path
) -> None:
    _script(services, READS_ONCE_RESTARTED, tmp_path)
    async with supervised(services, {"job"}, ledger, SILENT) as supervising:
        await wait_for_job(services, lambda: False)
        await until(lambda: "job" not in services.down, "the job is supervised")
    assert services.job.process.alive
    assert [(end.service, end.status, end.line) for end in supervising.ends] == [("job", 1, "no answer")]


async def test_a_job_that_never_reads_is_not_awaited_for_ever(services: Services, tmp_path: Path) -> None:
    _script(services, "exec sleep 60", tmp_path)
    times = iter(range(0, 100_000, 100))

    async def pass_over(_: float) -> None:
        await asyncio.sleep(0)

    with pytest.raises(RunError, match="does not read"):
        await wait_for_job(services, lambda: False, Clock(lambda: float(next(times)), pass_over))


FAILS_AT_ITS_END = "trap 'echo the reason; exit 3' TERM; echo runs; while :; do sleep 0.02; done"


def ended(process: Process) -> Process:
    """Return a process of the same command that has ended by itself."""
    crashed = Process(replace(process.command, arguments=("sh", "-c", "echo the reason; exit 3")))
    crashed.start()
    assert crashed.wait(SECONDS_MAX) == 3
    return crashed


@pytest.fixture
def services_down(services: Services, tmp_path: Path) -> Services:
    services.down.add("job")
    services.broker.process = Process(Command("kafka", ("true",), tmp_path / "kafka.log"))
    return services


@pytest.mark.parametrize("what", [FaultKind.KILL, FaultKind.RESTART, FaultKind.DISK_FULL])
async def test_an_agent_that_ended_by_itself_just_before_a_fault_is_noticed(
    services_down: Services, ledger: Ledger, what: FaultKind
) -> None:
    services_down.gateways[0].process = ended(services_down.gateways[0].process)
    services_down.down.discard("agent")
    with error(r"agent: ended by itself with status 3.*the reason"):
        await faults.play([Fault(0.0, FaultTarget.AGENT, what, 0.0)], services_down, ledger, SILENT, Reports())


async def test_a_broker_of_mqtt_that_ended_by_itself_ends_the_run(
    services_down: Services, ledger: Ledger, tmp_path: Path
) -> None:
    services_down.mosquitto = Mosquitto(tmp_path / "mosquitto")
    services_down.mosquitto.process = ended(services_down.mosquitto.process)
    with error("mosquitto: ended by itself with status 3"):
        await Supervisor(services_down, ledger, SILENT).run()


def test_an_agent_that_fails_when_it_is_asked_to_end_is_noticed(services_down: Services) -> None:
    command = replace(services_down.gateways[0].process.command, arguments=("sh", "-c", FAILS_AT_ITS_END))
    services_down.gateways[0].process = Process(command)
    services_down.gateways[0].process.start()
    services_down.gateways[0].process.wait_for_log("runs", SECONDS_MAX)
    with pytest.raises(RunError, match=r"(?s)agent: ended with status 3 after SIGTERM.*the reason"):
        services_down.stop()
