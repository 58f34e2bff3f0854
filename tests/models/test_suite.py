"""The suite of models: complete, and checked for real in its smallest part."""

import re

import pytest

from models import suite
from models.check import Result, check_all, check_configuration, check_mutant
from models.suite import GUARANTEES, Configuration, Mutant
from simulators.services.tlc import CheckOutcome, Run

SMALLEST = "store/failures"
LARGE_SECONDS_MAX = 1_100.0
BY_HAND = {"path/large", "path/large_elections", "path/large_replays", "store/large", "store/large_damaged_copies"}
"""Those that take longer than a heavy test may: `make model NAMES=large`."""


def _mutant(name: str) -> Mutant:
    return next(mutant for mutant in suite.mutants() if mutant.name == name)


def test_each_invariant_is_on_the_page_of_guarantees_and_has_two_mutants() -> None:
    assert suite.objections(suite.configurations(), suite.mutants(), GUARANTEES.read_text()) == []


@pytest.mark.parametrize("mutant", suite.mutants(), ids=lambda mutant: mutant.name)
def test_each_mutant_changes_its_specification(mutant: Mutant) -> None:
    original = mutant.configuration.specification.read_text()
    assert mutant.apply(original) != original


def test_every_specification_is_configured_and_every_configuration_checks_something() -> None:
    configurations = suite.configurations()
    assert {one.specification for one in configurations} == {*suite.FOLDER.glob("*/*.tla")}
    assert [str(one) for one in configurations if not (one.invariants or one.properties)] == []


def test_each_failure_happens_in_some_configuration() -> None:
    bounds = [
        (one.specification.stem, *bound)
        for one in suite.configurations()
        if not one.is_large
        for bound in re.findall(r"^ (\w+Max) = (\d+)$", one.path.read_text(), re.MULTILINE)
    ]
    assert len(bounds) > 50
    possible = {(specification, name) for specification, name, value in bounds if int(value) > 0}
    assert {(specification, name) for specification, name, _ in bounds} - possible == set()


def test_the_smallest_configuration_holds() -> None:
    result = check_configuration(suite.configuration(SMALLEST))
    assert (result.run.outcome, result.failure) == (CheckOutcome.HOLDS, ""), result.run.output
    assert result.run.states > 1_000


@pytest.mark.parametrize("name", ["refused_event_is_remembered", "epoch_of_the_store_instead_of_the_opening"])
def test_a_mutant_is_found(name: str) -> None:
    mutant = _mutant(name)
    result = check_mutant(mutant)
    assert (result.run.outcome, result.run.violated, result.failure) == (CheckOutcome.VIOLATED, mutant.breaks, "")


def test_a_mutant_that_survives_or_breaks_another_invariant_fails() -> None:
    mutant = _mutant("mark_before_the_send")
    configuration = mutant.configuration
    assert Result(mutant, Run(CheckOutcome.HOLDS, "", states=9), 1).failure == "survives"
    assert Result(mutant, Run(CheckOutcome.VIOLATED, "", "StoredOnce"), 1).failure == "breaks StoredOnce instead"
    assert Result(mutant, Run(CheckOutcome.VIOLATED, "", "MarkedWasSent"), 1).failure == ""
    assert Result(mutant, Run(CheckOutcome.FAILED, ""), 1).failure == "TLC failed"
    assert Result(configuration, Run(CheckOutcome.VIOLATED, "", "StoredOnce"), 1).failure == "violates StoredOnce"
    assert Result(configuration, Run(CheckOutcome.HOLDS, "", states=9), 1).failure == ""


@pytest.mark.heavy
def test_every_configuration_holds_and_every_mutant_is_found() -> None:
    configurations = [one for one in suite.configurations() if not one.is_large]
    results = check_all(configurations, suite.mutants(), lambda _: None)
    assert [(result.check, result.failure) for result in results if result.failure] == []


@pytest.mark.heavy
@pytest.mark.parametrize(
    "configuration", [one for one in suite.configurations() if one.is_large and str(one) not in BY_HAND], ids=str
)
def test_a_large_configuration_holds(configuration: Configuration) -> None:
    result = check_configuration(configuration, LARGE_SECONDS_MAX)
    assert (result.run.outcome, result.failure) == (CheckOutcome.HOLDS, ""), result.run.output[-5_000:]
