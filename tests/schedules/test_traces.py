"""What agent, Kafka and job do in schedules is a behaviour of the model of the path, and other orders are not."""

import pytest

from tests.schedules.traced_world import trace
from tests.schedules.traces import Change, Line, Positions, Trace, changes, fitting, fitting_lines

SCHEDULES = (
    (1, "kill of the agent", "kill of the agent"),
    (2, "kill of the job", "kill of the agent"),
    (4, "power cut", "restart of the agent", "kill of the job"),
    (3, "outage of Kafka", "kill of the agent"),
    (1, "election", "election", "kill of the job"),
)
LINES_MAX = 40
"""Within so many a mutant is found."""

LIVES = {"opened", "ended", "killed", "connected", "disconnected"}
PARTS = (
    {"received", "acked"},
    {"committed", "purged"},
    {"produced", "forwarded"},
    {"reported"},
    {"appended", "elected"},
    {"receipted"},
    {"planned", "written", "receipt", "job killed"},
)
"""What one thread does, in its order; the broker appends and reports in the order of its log."""
CAUSES = {
    ("received", "committed"),
    ("committed", "acked"),
    ("committed", "produced"),
    ("produced", "appended"),
    ("appended", "reported"),
    ("appended", "planned"),
    ("reported", "forwarded"),
    ("forwarded", "receipted"),
    ("receipt", "receipted"),
    ("receipted", "purged"),
}
"""What one thread does to an event before another one can do something to it."""


IN_MEMORY = {"received", "acked", "produced", "reported", "forwarded", "receipted"}
"""What a kill takes before something else has followed from it."""


def events_of(line: Line) -> Positions:
    return line.positions or frozenset({line.position})


def is_exchangeable(first: Line, second: Line) -> bool:
    """Whether two threads do this, and the one does not wait for the other."""
    pair = {first.event, second.event}
    if "settled" in pair or any(pair <= part for part in PARTS):
        return False
    if pair & LIVES:
        return not pair & LIVES - {"connected"} and pair <= {"connected"} | PARTS[0] | PARTS[1] | PARTS[5]
    return (first.event, second.event) not in CAUSES or not events_of(first) & events_of(second)


@pytest.fixture(scope="module")
def undisturbed() -> list[Line]:
    return trace(3)


@pytest.mark.guarantee(0)
def test_traces_with_and_without_kills_fit_the_model(undisturbed: list[Line]) -> None:
    traces = [undisturbed, *(trace(*schedule) for schedule in SCHEDULES)]
    events = {line.event for one in traces for line in one}
    assert events == {*LIVES, "settled", *(event for part in PARTS for event in part)}
    assert fitting(traces) == [True] * len(traces)


@pytest.mark.guarantee(0)
def test_no_trace_with_a_line_left_out_or_repeated_fits_and_only_independent_lines_may_be_exchanged(
    undisturbed: list[Line],
) -> None:
    changed = list(changes(undisturbed))
    _, *fits = fitting([undisturbed, *(change.trace for change in changed)])
    wrong = [
        (change.kind, change.lines, fit) for change, fit in zip(changed, fits, strict=True) if fit != is_legal(change)
    ]
    assert wrong == []
    assert 5 < sum(fits) < len(changed) / 5


@pytest.mark.guarantee(0)
def test_with_kills_no_line_may_be_left_out_or_repeated_but_what_the_kill_explains() -> None:
    killed = trace(*SCHEDULES[1])
    changed = [change for change in changes(killed) if change.kind != "exchanged"]
    _, *fits = fitting([killed, *(change.trace for change in changed)])
    found = [change for change, fit in zip(changed, fits, strict=True) if fit]
    assert [(change.kind, change.at, change.lines) for change in found if not is_explained(killed, change)] == []
    assert len(found) < len(changed) / 10


def is_explained(killed: Trace, change: Change) -> bool:
    """Whether a kill explains the change: it takes the agent's memory, and the job does again what it had not noted."""
    (line,) = change.lines
    if change.kind == "repeated" and line.event in PARTS[-1]:
        earlier = [one.event for one in killed[: change.at] if one.event in PARTS[-1]]
        return line.event == "job killed" or (line.event, earlier[-1]) == ("receipt", "job killed")
    rest = [one.event for one in killed[change.at :]]
    life = killed[change.at : change.at + rest.index("killed")] if "killed" in rest else ()
    if change.kind == "repeated":
        return line.event == "received" and bool(life)
    has_effect = any((line.event, one.event) in CAUSES and events_of(line) & events_of(one) for one in life)
    return line.event in IN_MEMORY and bool(life) and not has_effect


def is_legal(change: Change) -> bool:
    return change.kind == "exchanged" and is_exchangeable(change.lines[0], change.lines[1])


@pytest.mark.guarantee(0)
def test_the_traces_of_mutants_fit_up_to_the_line_of_their_fault() -> None:
    elections = ("election",) * 3
    traces = [
        *(trace(3, mutant=mutant) for mutant in ("ack-before-commit", "mark-before-report", "purge-before-receipt")),
        trace(3, mutant="receipt-before-commit"),
        trace(5, *elections, mutant="leader-unchecked"),
    ]
    beginnings = [one[:LINES_MAX] for one in traces]
    first_wrong = [one[lines].event for one, lines in zip(beginnings, fitting_lines(beginnings), strict=True)]
    assert first_wrong == ["acked", "forwarded", "receipted", "receipt", "forwarded"]
    assert fitting([trace(5, *elections)]) == [True]
