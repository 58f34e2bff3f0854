"""The example of docs/field-test.md is a scenario."""

from __future__ import annotations

import re
from pathlib import Path

from simulators import strict_toml
from simulators.scenario import (
    Scenario,
)

PAGE = (Path(__file__).parents[2] / "docs" / "field-test.md").read_text()


def test_the_example_is_a_scenario() -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)
    assert strict_toml.parse(example, Scenario, "the example").name == "greenhouse"
