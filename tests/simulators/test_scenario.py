import sys
from pathlib import Path

import pytest

from simulators import launch, strict_toml
from simulators.scenario import Bug, FaultKind, FaultTarget, Scenario, SensorKind, shipped
from simulators.strict_toml import TomlError
from tests.simulators.test_mutants import MUTANTS
from tests.support.commands import output_of

SMALL = """
name = "small"
description = "Something."
seconds = 5
[[fleets]]
kind = "coap"
sensors = 2
every_seconds = 1
"""


def _parse(text: str) -> Scenario:
    return strict_toml.parse(text, Scenario, "my.toml")


def test_together_they_play_every_sort_bug_part_and_fault() -> None:
    scenarios = shipped().values()
    fleets = [fleet for scenario in scenarios for fleet in scenario.fleets]
    assert {fleet.kind for fleet in fleets} == set(SensorKind)
    assert {bug for fleet in fleets for bug in fleet.bugs} == set(Bug)
    faults = [fault for scenario in scenarios for fault in scenario.faults]
    assert {fault.kind for fault in faults} == set(FaultKind)
    assert {fault.target for fault in faults} == set(FaultTarget)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (SMALL + "sensor = 3", r"my.toml: unknown key 'fleets\[1\].sensor'; did you mean 'sensors'\?"),
        ("second = 5\n" + SMALL, r"my.toml: unknown key 'second'; did you mean 'seconds'\?"),
        (SMALL + "[link]\nrequest_los = 0.1", r"unknown key 'link.request_los'; did you mean 'request_loss'\?"),
        (SMALL + "bugs = ['counter-restart']", r"'fleets\[1\].bugs\[1\]' is 'counter-restart'; did you mean 'count"),
        (SMALL + "[link]\nrequest_loss = 2", r"my.toml: link: request_loss is 2.0; expected a rate from 0 to 1"),
        (SMALL + "[link]\nrequest_loss = 'no'", r"'link.request_loss' is 'no'; expected a number"),
        (SMALL.replace("sensors = 2", "sensors = true"), r"'fleets\[1\].sensors' is True; expected a whole number"),
        (SMALL.replace("seconds = 5", ""), r"'seconds' is missing"),
        (SMALL.replace("sensors = 2", "sensors = 0"), r"fleets\[1\]: sensors, every_seconds"),
        (
            SMALL.replace('"coap"', '"store-and-forward"') + "known_by = ['neither']",
            "store-and-forward sensors need an id or a time",
        ),
        (SMALL + "[[faults]]\nat = 1\ntarget = 'kafka'\nkind = 'clock'", "clock happens to an agent, not to kafka"),
        (SMALL + "link = 3", r"unknown key 'fleets\[1\].link'"),
        ("fleets = 3\n", r"'name' is missing"),
        ("name = ", r"my.toml: Invalid value"),
    ],
)
def test_a_mistake_is_named_with_file_and_key(text: str, complaint: str) -> None:
    with pytest.raises(TomlError, match=complaint):
        _parse(text)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_patch_finds_what_it_exchanges(name: str) -> None:
    script = f"from tests.simulators import mutants; mutants.{name}()"
    output_of(sys.executable, "-c", script)


def test_the_clock_of_the_agent_alone_is_shifted(tmp_path: Path) -> None:
    (tmp_path / "clock").write_text("-259200000\n")
    script = (
        "import time, simulators.launch as launch; launch.shift_clock(); from agent.clock import SystemClock;"
        "print(round((SystemClock().wall_ms() / 1000 - time.time()) / 86400))"
    )
    environment = {launch.CLOCK_VARIABLE: str(tmp_path / "clock"), "PYTHONPATH": ":".join(sys.path)}
    assert output_of(sys.executable, "-c", script, environment=environment).strip() == "-3"
