"""The shipped scenarios on real services: nothing is lost or doubled in any of them."""

import asyncio
from pathlib import Path

import pytest
from rich.console import Console

from simulators.display import Display
from simulators.run.options import RunOptions
from simulators.run.run import run
from simulators.scenario import find, shipped


@pytest.mark.guarantee(0)
@pytest.mark.heavy
@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("name", sorted(shipped()))
def test_nothing_is_lost_or_doubled(name: str, tmp_path: Path) -> None:
    verdict = asyncio.run(
        run(RunOptions(find(name), seed=7, folder=tmp_path / "run"), Display(Console()), asyncio.Event())
    )
    print(verdict)
    assert verdict.faults == {}
