"""docs/field-test.md describes every key of a scenario."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from simulators import strict_toml
from simulators.oracle.verdict import BROKEN, DECLARED
from simulators.scenario import (
    Bug,
    Fault,
    FaultKind,
    FaultTarget,
    FleetPlan,
    GatewayPlan,
    LanePlan,
    LinkOutage,
    LinkPlan,
    Scenario,
    SensorKind,
    shipped,
)

PAGE = (Path(__file__).parents[2] / "docs" / "field-test.md").read_text()


@pytest.mark.parametrize("schema", [Scenario, FleetPlan, LinkPlan, LinkOutage, GatewayPlan, LanePlan, Fault])
def test_every_key_is_explained(schema: type) -> None:
    sections = {"fleets", "link", "gateway", "faults"}
    assert {f"`{field.name}`" for field in fields(schema) if field.name not in sections} <= set(
        re.findall("`[a-z_]+`", PAGE)
    )


def test_every_choice_is_explained() -> None:
    words = [*SensorKind, *Bug, *FaultTarget, *FaultKind, *shipped(), *DECLARED]
    assert [word for word in words if f"`{word}`" not in PAGE] == []
    assert [word for word in BROKEN if f"**{word}**" not in PAGE] == []


def test_the_example_is_a_scenario() -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)
    assert strict_toml.parse(example, Scenario, "the example").name == "greenhouse"
