"""Each figure in the tables of docs/benchmarks.md is in the benchmarks' JSON files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "benchmarks.md"
README = ROOT / "README.md"
KEPT = ROOT / "docs" / "benchmarks"
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
FIGURES = "| figure | measured | goal |"
STATE = (
    "| keys in the state | a batch of 2,000 keys | state on disk "
    "| events/s with a window of 10 minutes | of an hour | of 4 hours |"
)
CAP = (
    "| cap, bytes/s | sent, bytes/s | p50 of acks, ms | p99 of acks, ms "
    "| p50 by that without an uplink | p99 by that without an uplink |"
)
TABLES = [
    ("agent", "## Protocols", "| contender | events/s | CPU per event | p99 | durable before the answer |", (1, 2, 3)),
    (
        "uplink",
        "## The uplink",
        "| codec | bytes/event, one by one | 20 at a time | 1,000 at a time | CPU µs/event |",
        (1, 2, 3, 4),
    ),
    ("thin_link", "## Thin uplinks", "| gateway | MB a day | bytes for each event |", (1, 2)),
    ("uplink_cap", "## The cap of the uplink", CAP, (1, 2, 3, 4, 5)),
    ("store", "## The event store", FIGURES, (1,)),
    ("cloud", "## The cloud", "| contender | records/s | by CPU second |", (1, 2)),
    ("cloud job", "## The cloud", FIGURES, (1,)),
    ("job", "## The cloud", STATE, (1,)),
    ("job", "## The cloud", "| keys in the state | a batch of 2,000 keys on one core | on two cores |", (1, 2)),
]


def rows(head: str, text: str) -> list[list[str]]:
    """Return the cells of all tables with this header."""
    tables = [part.split("\n\n")[0] for part in text.split(f"{head}\n")[1:]]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for table in tables for line in table.splitlines()[1:]]


def leaves(kept: object) -> Iterator[float]:
    """Yield all numbers of a JSON file."""
    if isinstance(kept, dict):
        kept = list(kept.values())
    if isinstance(kept, list):
        for each in kept:
            yield from leaves(each)
    elif isinstance(kept, int | float):
        yield float(kept)


def is_kept(written: str, kept: list[float]) -> bool:
    """Whether a number is one of the kept, rounded; or a thousandth of one, as seconds are of milliseconds."""
    value, decimals = float(written.replace(",", "")), len(written.partition(".")[2])
    half = 0.5 * 10**-decimals * 1.001
    return any(abs(one / unit - value) <= half for one in kept for unit in (1, 1_000))


@pytest.mark.parametrize(("names", "part", "head", "columns"), TABLES)
def test_each_figure_in_a_table_is_kept(names: str, part: str, head: str, columns: tuple[int, ...]) -> None:
    kept = [
        figure
        for name in names.split()
        for figure in leaves(json.loads((KEPT / f"{name}.json").read_text())["figures"])
    ]
    text = PAGE.read_text().partition(f"{part}\n")[2].partition("\n## ")[0]
    cells = [(row[0], row[column]) for row in rows(head, text) for column in columns]
    assert len(cells) > 5
    assert [(row, one) for row, cell in cells for one in NUMBER.findall(cell) if not is_kept(one, kept)] == []


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
