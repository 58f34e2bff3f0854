"""Mutants of agent and job on the whole path: the oracle catches every one of them."""

import asyncio
from pathlib import Path

import pytest
from rich.console import Console

from simulators.display import Display
from simulators.oracle.verdict import Verdict
from simulators.payloads import KnownBy
from simulators.run.options import RunOptions
from simulators.run.run import run
from simulators.run.services import Overrides
from simulators.scenario import Fault, FaultKind, FaultTarget, FleetPlan, LinkPlan, Scenario, SensorKind

pytestmark = [pytest.mark.heavy, pytest.mark.kafka, pytest.mark.spark]

KILLS = (Fault(5.0, FaultTarget.AGENT, FaultKind.KILL, 0.5), Fault(9.0, FaultTarget.AGENT, FaultKind.KILL, 0.5))
RESTORED_CARD = (Fault(3.0, FaultTarget.AGENT, FaultKind.BACKUP), Fault(9.0, FaultTarget.AGENT, FaultKind.RESTORE))
JOB_KILLED = tuple(Fault(at, FaultTarget.JOB, FaultKind.KILL, 0.0) for at in (4.0, 10.0))

MUTANTS = {
    "ack_before_commit": ("agent", KILLS, "lost"),
    "fingerprint_forgotten": ("agent", KILLS, "mislabelled"),
    "fingerprint_remembered_before_commit": ("agent", (), "lost"),
    "sequence_reused": ("agent", RESTORED_CARD, "mislabelled"),
    "key_too_wide": ("agent", (), "doubled"),
    "last_of_pack_dropped": ("agent", (), "lost"),
    "late_event_dropped": ("job", (), "lost"),
    "receipt_before_commit": ("job", JOB_KILLED, "premature"),
    "duplicates_not_dropped_in_the_cloud": ("job", RESTORED_CARD, "doubled"),
}


def _judged(folder: Path, faults: tuple[Fault, ...], overrides: Overrides) -> Verdict:
    scenario = Scenario(
        name="mutant",
        description="Whether a mistake is seen.",
        seconds=14.0,
        fleets=(
            FleetPlan(SensorKind.COAP, sensors=40, every_seconds=1.0, known_by=tuple(KnownBy)),
            FleetPlan(SensorKind.STORE_AND_FORWARD, sensors=6, every_seconds=0.3, pack_max=8),
        ),
        speed=10,
        settle_seconds=60,
        link=LinkPlan(request_loss=0.05, answer_loss=0.4, delay_seconds=0.002, jitter_seconds=0.02),
        faults=faults,
    )
    options = RunOptions(scenario, seed=7, folder=folder, overrides=overrides)
    verdict = asyncio.run(run(options, Display(Console()), asyncio.Event()))
    print(verdict)
    return verdict


@pytest.mark.guarantee(0)
@pytest.mark.parametrize("faults", [KILLS, RESTORED_CARD, JOB_KILLED], ids=["kills", "restored-card", "job-killed"])
def test_the_product_as_it_is_keeps_the_promise(tmp_path: Path, faults: tuple[Fault, ...]) -> None:
    verdict = _judged(tmp_path / "run", faults, Overrides())
    assert verdict.faults == {}
    assert verdict.rows is not None
    assert verdict.acked > 300


@pytest.mark.guarantee(0)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_caught(tmp_path: Path, mutant: str) -> None:
    program, faults, expected = MUTANTS[mutant]
    patch = (f"tests.simulators.mutants:{mutant}",)
    overrides = Overrides(agent_patches=patch) if program == "agent" else Overrides(job_patches=patch)
    verdict = _judged(tmp_path / "run", faults, overrides)
    assert expected in verdict.faults
    caught = [violation for violation in verdict.violations if violation.what == expected]
    assert caught or expected == "premature"
