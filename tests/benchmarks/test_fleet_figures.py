"""The figures of docs/capacity.md are those of the benchmark, and its arithmetic is right."""

from __future__ import annotations

import json
import re

import pytest

from benchmarks.fleet.herd import SESSION_CONNECTIONS
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "capacity.md").read_text()
KEPT = {one["name"]: one for one in json.loads((ROOT / "docs" / "benchmarks" / "fleet.json").read_text())["figures"]}
GATEWAYS = 100_000
CASES = {
    "blackout, all booted within 1 s": "blackout, booted within 1 s",
    "blackout, booted within 30 s": "blackout, booted within 30 s",
    "brokers away for 10 minutes": "brokers away for 10 minutes",
}


def number(text: str) -> float:
    return float(text.replace(",", ""))


def test_the_return_of_the_fleet_is_as_simulated() -> None:
    rows = re.findall(r"^\| ([a-z][^|]*)?\| ([\d,]+) \| (\d+) \| (\d+) \| ([\d,]+) \| ([\d,]+) \|$", PAGE, re.MULTILINE)
    assert len(rows) == 9
    case = ""
    for name, rate, at_least, whole, without, peak in rows:
        case = CASES[name.strip()] if name.strip() else case
        kept, without_jitter = (KEPT[f"{case}, {law}, {rate} connections/s"] for law in ("jitter", "no jitter"))
        assert number(at_least) == round(GATEWAYS * SESSION_CONNECTIONS / number(rate))
        assert (number(whole), number(without)) == (round(kept["value"]), round(without_jitter["value"]))
        assert number(peak) == kept["details"]["peak_per_second"]


def test_a_poll_has_the_requests_and_bytes_that_were_recorded() -> None:
    details = KEPT["group's offsets, requests of a poll"]["details"]
    assert details["names"] == ["OffsetFetch", "ListOffsets", "Metadata"]
    assert f"| {details['sent_bytes']} to the broker, {details['received_bytes']:,} back |" in PAGE
    assert f"| receipts {details['connections']}, forwarder" in PAGE


def test_the_polls_of_both_ways_are_those_that_were_measured() -> None:
    said = " ".join(PAGE.split())
    for name in ("group's offsets", "topic of receipts"):
        kept = KEPT[f"{name}, 10,000 gateways, every 10 s"]
        assert f"{kept['details']['polls_per_second']:,.0f}" in said
        assert (
            f"{kept['details']['broker_cores']:.2f} cores" in said
            or f"at {kept['details']['broker_cores']:.2f}" in said
        )
        assert kept["details"]["failures"] == 0


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
