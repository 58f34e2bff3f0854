"""A card that a run replaces by its copy: the agent runs again, with the contents of the copy."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from simulators.display import Display
from simulators.ledger import Happened, Ledger, read
from simulators.oracle.evidence_database import RESTORED
from simulators.run import faults
from simulators.run.gateway import Gateway
from simulators.run.job import Job
from simulators.run.play import Reports
from simulators.run.services import Services
from simulators.scenario import Fault, FaultKind, FaultTarget
from simulators.services.kafka.broker import Broker

FAULTS = (Fault(0.0, FaultTarget.AGENT, FaultKind.BACKUP), Fault(0.1, FaultTarget.AGENT, FaultKind.RESTORE))


@pytest.mark.heavy
async def test_the_agent_runs_again_with_the_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "RESTORED_SECONDS", 0.0)
    with Gateway(tmp_path / "gateway-1", tmp_path / "agent.log", "127.0.0.1:1") as gateway:
        status = gateway.status
        monkeypatch.setattr(gateway, "status", lambda: replace(status(), new=0))  # as if Kafka had the events
        job = Job(tmp_path / "cloud", tmp_path / "job.log", "127.0.0.1:1")
        services = Services(Broker(tmp_path / "kafka"), [gateway], job, down={"kafka", "job"})
        with Ledger(tmp_path / "ledger.jsonl", lambda: 0) as ledger:
            await faults.play(FAULTS, services, ledger, Display(Console(file=io.StringIO())), Reports())
        assert gateway.process.alive
        assert "agent" not in services.down
        happened = [line.what for line in read(tmp_path / "ledger.jsonl") if isinstance(line, Happened)]
        assert happened == ["copied", "runs again", RESTORED, "runs again"]
