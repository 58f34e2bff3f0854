"""A part of a benchmark that runs alone leaves the other figures unchanged."""

import json
from pathlib import Path

import pytest

from benchmarks import report
from benchmarks.report import Figure


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(report, "FOLDER", tmp_path)
    return tmp_path


def kept(file: Path) -> dict[str, float]:
    return {figure["name"]: figure["value"] for figure in json.loads(file.read_text())["figures"]}


def test_a_merged_figure_takes_the_place_of_its_name_and_a_new_one_comes_last() -> None:
    report.keep("some", [Figure("speed", 1, "1/s"), Figure("growth", 2, "times")])

    file = report.merge("some", [Figure("drain", 3, "1/s"), Figure("speed", 4, "1/s")])

    assert list(kept(file).items()) == [("speed", 4), ("growth", 2), ("drain", 3)]


def test_each_later_run_is_named_with_the_figures_that_are_still_its_own() -> None:
    report.keep("some", [Figure("speed", 1, "1/s")], cycles=1)
    report.merge("some", [Figure("drain", 2, "1/s"), Figure("share", 2, "times")], cycles=2)
    report.merge("some", [Figure("drain", 3, "1/s")], cycles=3)
    file = report.merge("some", [Figure("drain", 4, "1/s")], cycles=4)

    later = json.loads(file.read_text())["later"]

    assert [(run["settings"]["cycles"], run["figures"]) for run in later] == [(2, ["share"]), (4, ["drain"])]


def test_a_whole_run_keeps_nothing_of_earlier_ones() -> None:
    report.keep("some", [Figure("speed", 1, "1/s")])
    report.merge("some", [Figure("drain", 2, "1/s")])

    file = report.keep("some", [Figure("growth", 3, "times")])

    assert kept(file) == {"growth": 3}
    assert "later" not in json.loads(file.read_text())


def test_merging_into_nothing_keeps_what_there_is() -> None:
    assert kept(report.merge("some", [Figure("drain", 1, "1/s")])) == {"drain": 1}
