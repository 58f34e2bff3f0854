"""Tests that share a service stay in one process."""

from __future__ import annotations

import pytest

from tests.docs.pages import ROOT
from tests.support.scheduling import GROUPS, group_of, place_of


@pytest.mark.parametrize("group", GROUPS)
def test_each_group_is_a_folder_of_tests(group: str) -> None:
    assert list((ROOT / "tests" / group).rglob("test_*.py"))


def test_a_folder_with_services_is_one_group_and_others_go_by_file() -> None:
    assert group_of("tests/cloud/stream/test_a.py::test_b[c]") == group_of("tests/cloud/test_d.py::test_e") == "cloud"
    assert group_of("tests/contract/test_a.py::test_b[c::d]") == "tests/contract/test_a.py"


def test_groups_are_begun_in_their_order_and_before_single_files() -> None:
    tests = [f"tests/{group}/test_a.py::test_b" for group in GROUPS]
    places = [place_of(test) for test in [*tests, "tests/contract/test_a.py::test_b"]]
    assert places == sorted(set(places))
