"""The arithmetic of docs/capacity.md is right."""

from __future__ import annotations

import json
import re

import pytest

from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "capacity.md").read_text()
GATEWAYS = 100_000


def number(text: str) -> float:
    return float(text.replace(",", ""))


def test_the_costs_follow_from_the_formulas_and_the_prices() -> None:
    prices = {
        letter: float(price) for letter, price in re.findall(r"^\| [^|]+ \| ([a-z]) \| ([\d.]+) \|", PAGE, re.MULTILINE)
    }
    rows = re.findall(r"\| ([\d,]+)(?: x ([\d,]+))? x ([a-z]) \| ([\d,]+) \|$", PAGE, re.MULTILINE)
    assert {letter for _, _, letter, _ in rows} == set(prices)
    for count, times, letter, cost in rows:
        assert number(count) * number(times or "1") * prices[letter] == pytest.approx(number(cost), rel=0.01)


def test_the_cores_of_the_job_that_cost_are_those_of_the_model() -> None:
    of_the_model = [
        int(one) for one in re.findall(r"^\| cores of the job for [^|]+ \|[^|]*\| (\d+) \|", PAGE, re.MULTILINE)
    ]
    [(cores, reserved, priced)] = re.findall(
        r"the model's (\d+) cores, with a reserve of a third (\d+) \| (\d+) x", PAGE
    )
    assert len(of_the_model) == 2
    assert (int(cores), int(reserved)) == (sum(of_the_model), int(priced))
    assert int(reserved) == pytest.approx(int(cores) * 4 / 3, abs=0.5)


def test_the_traffic_that_costs_is_that_of_the_model() -> None:
    gigabytes = [number(one) for one in re.findall(r" MB/s[^|]* \| ([\d,]+) x [a-z] \|", PAGE)]
    thin = json.loads((ROOT / "docs" / "benchmarks" / "thin_link.json").read_text())
    events = thin["settings"]["seconds"] / thin["settings"]["event_seconds"]
    [received] = [one["details"]["received_bytes"] for one in thin["figures"] if one["name"] == "defaults, a day"]
    answers = received / events * GATEWAYS / 3 / 1e6
    assert f"{received / events:.0f} bytes for each event" in PAGE
    assert gigabytes == pytest.approx([rate * 730 * 3_600 / 1_000 for rate in (20, 20 / 3, answers)], rel=0.01)
