"""A local run whose job ends by itself: it is started again, as its unit states, and the run reaches its verdict."""

from __future__ import annotations

import asyncio
import io
import os
from pathlib import Path

import pytest
from rich.console import Console

from simulators import ledger
from simulators.display import Display
from simulators.ledger import Happened
from simulators.payloads import KnownBy
from simulators.run.options import RunOptions
from simulators.run.run import run
from simulators.run.services import Overrides
from simulators.run.stop import Stop
from simulators.scenario import FleetPlan, LinkPlan, Scenario, SensorKind

pytestmark = [pytest.mark.heavy, pytest.mark.kafka, pytest.mark.spark]

MARKER = "ended-once"
STATUS = 1


def end_before_the_first_receipt() -> None:
    """End the job right before its first receipt, once: in the folder of the job a file notes it."""
    from cloud.stream.receipts import Receipts
    from cloud.table.commits import Commit

    write_receipt = Receipts.commit

    def end_or_commit(self: Receipts, commit: Commit) -> bool:
        if commit.ends and not Path(MARKER).exists():
            Path(MARKER).touch()
            os._exit(STATUS)
        return write_receipt(self, commit)

    Receipts.commit = end_or_commit  # type: ignore[method-assign]


def test_a_job_that_ends_by_itself_is_started_again_and_nothing_is_lost(tmp_path: Path) -> None:
    scenario = Scenario(
        name="ended-job",
        description="Whether a run continues.",
        seconds=10.0,
        fleets=(FleetPlan(SensorKind.COAP, sensors=20, every_seconds=1.0, known_by=tuple(KnownBy)),),
        speed=10,
        settle_seconds=60,
        link=LinkPlan(answer_loss=0.3),
    )
    patches = (f"{__name__}:{end_before_the_first_receipt.__name__}",)
    options = RunOptions(scenario, seed=7, folder=tmp_path / "run", overrides=Overrides(job_patches=patches))
    output = io.StringIO()
    verdict = asyncio.run(run(options, Display(Console(file=output)), Stop()))
    lines = ledger.read(tmp_path / "run" / "ledger.jsonl")
    ends = [line.what for line in lines if isinstance(line, Happened) and line.part == "job"]
    assert ends == [f"ended by itself with status {STATUS}"], output.getvalue()
    assert verdict.faults == {}
    assert verdict.rows == verdict.acked > 0
