"""The services of a run: one that ends by itself is noticed, even where a fault follows."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from simulators.display import Display
from simulators.errors import RunError
from simulators.ledger import Ledger
from simulators.run import faults
from simulators.run.gateway import Gateway
from simulators.run.job import Job
from simulators.run.play import Reports
from simulators.run.services import Services
from simulators.scenario import Fault, FaultKind, FaultTarget
from simulators.services.kafka.broker import Broker
from simulators.services.mosquitto import Mosquitto
from simulators.services.process import Command, Process

SECONDS_MAX = 30.0
FAILS_AT_ITS_END = "trap 'echo the reason; exit 3' TERM; echo runs; while :; do sleep 0.02; done"


def ended(process: Process) -> Process:
    """Return a process of the same command that has ended by itself."""
    crashed = Process(replace(process.command, arguments=("sh", "-c", "echo the reason; exit 3")))
    crashed.start()
    assert crashed.wait(SECONDS_MAX) == 3
    return crashed


@pytest.fixture
def services(tmp_path: Path) -> Services:
    """Return services that are all down on purpose."""
    gateway = Gateway(tmp_path / "gateway-1", tmp_path / "agent.log", "127.0.0.1:1")
    job = Job(tmp_path / "cloud", tmp_path / "job.log", "127.0.0.1:1")
    broker = Broker(tmp_path / "kafka")
    broker.process = Process(Command("kafka", ("true",), tmp_path / "kafka.log"))
    return Services(broker, [gateway], job, down={"kafka", "job", "agent"})


@pytest.mark.parametrize("what", [FaultKind.KILL, FaultKind.RESTART, FaultKind.DISK_FULL])
async def test_an_agent_that_ended_by_itself_just_before_a_fault_is_noticed(
    services: Services, what: FaultKind, tmp_path: Path
) -> None:
    services.gateways[0].process = ended(services.gateways[0].process)
    services.down.discard("agent")
    with (
        Ledger(tmp_path / "ledger.jsonl", lambda: 0) as ledger,
        pytest.RaisesGroup(pytest.RaisesExc(RunError, match=r"(?s)agent: ended by itself with status 3.*the reason")),
    ):
        fault, display = Fault(0.0, FaultTarget.AGENT, what, 0.0), Display(Console(file=io.StringIO()))
        await faults.play([fault], services, ledger, display, Reports())


def test_a_broker_of_mqtt_that_ended_by_itself_is_noticed(services: Services, tmp_path: Path) -> None:
    services.mosquitto = Mosquitto(tmp_path / "mosquitto")
    services.mosquitto.process = ended(services.mosquitto.process)
    assert "mosquitto: ended by itself with status 3" in str(services.unexpected_end())


def test_an_agent_that_fails_when_it_is_asked_to_end_is_noticed(services: Services) -> None:
    command = replace(services.gateways[0].process.command, arguments=("sh", "-c", FAILS_AT_ITS_END))
    services.gateways[0].process = Process(command)
    services.gateways[0].process.start()
    services.gateways[0].process.wait_for_log("runs", SECONDS_MAX)
    with pytest.raises(RunError, match=r"(?s)agent: ended with status 3 after SIGTERM.*the reason"):
        services.stop()
