"""The figures in the README are those in the benchmarks' JSON files."""

from __future__ import annotations

import json
import re

from tests.docs.pages import ROOT

README = ROOT / "README.md"
KEPT = ROOT / "docs" / "benchmarks"


def test_the_line_of_figures_in_the_readme_is_kept() -> None:
    [line] = re.findall(r"^\*\*Measured\*\* .*?(?=\n\n)", README.read_text(), re.DOTALL | re.MULTILINE)
    figures = [
        float(one.replace(",", "")) for one in re.findall(r"(?<![\w.])\d[\d,]*(?:\.\d+)?", line.replace("\n", " "))
    ]
    kept = {name: json.loads((KEPT / f"{name}.json").read_text()) for name in ("agent", "gateway", "layers")}
    by_name = {one["name"]: one["value"] for part in ("agent", "gateway") for one in kept[part]["figures"]}
    usual = kept["layers"]["outcomes"][0]
    assert figures == [
        round(by_name["CoAP, 256 outstanding"]),
        round(by_name["memory (RSS), idle"]),  # with Kafka, when all is settled
        round(by_name["memory, idle"]),  # without Kafka, just after the start
        round(by_name["start to READY, median"], 2),
        *(usual[name] for name in ("lost", "doubled", "events", "transmissions")),
    ]
