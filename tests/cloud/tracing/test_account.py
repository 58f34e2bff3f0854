from dataclasses import replace

import pytest

from cloud.tracing.account import Status, account
from cloud.tracing.command import lines, main
from cloud.tracing.facts import (
    Audited,
    EpochFacts,
    Evidence,
    Gap,
    Label,
    Quarantined,
    Record,
    Row,
    TopicSearch,
    Wanted,
)
from cloud.tracing.settings import parse

MARK, EPOCH, NOON = "1876d2e5f34f91105e52555b000b5edc", "5f1c0d6b6a0f4f1d", 1_777_636_800_000
FIRST, OTHER = Label("gw-1", EPOCH, 17), Label("gw-2", "00000000000000b2", 4)
ROW = Row(MARK, "urn:dev:mac:1", FIRST, "7", NOON, 3, 812, NOON + 5_000)
HERE, THERE = (
    Record(3, offset, NOON + 1_000, "urn:dev:mac:1", MARK, label, NOON)
    for offset, label in ((812, FIRST), (900, OTHER))
)
SEARCH = TopicSearch("oncegate.events", "AbCdEfGhIjKlMnOpQrStUv", [], {3: (0, 0, 1_000)}, NOON)
FOUND, COPY = replace(SEARCH, records=[HERE]), replace(SEARCH, records=[THERE])
NOTHING = Evidence(Wanted(label=FIRST), "oncegate-cloud", [], [], SEARCH, {3: 1_000}, [], EpochFacts(20, None, True))
GAP = Gap("dropped for newer events: the store was full", NOON, 10, 18)
REUSED, MALFORMED = (Quarantined(SEARCH.topic_id, 3, 812, reason, NOON) for reason in ("id_reused", "value"))
OF_ANOTHER = "it is of table t, not of u"
BY_MARK = replace(NOTHING, wanted=Wanted(MARK), epoch=None)
CASES: list[tuple[Evidence, Status, str]] = [
    (replace(NOTHING, wanted=Wanted(MARK), rows=[ROW], search=FOUND), Status.ACCEPTED, f"by gw-1 {EPOCH} 17"),
    (
        replace(NOTHING, rows=[ROW], search=replace(SEARCH, ends={3: (900, 900, 1_000)})),
        *(Status.ACCEPTED, "Not found: retention has deleted it"),
    ),
    (
        replace(NOTHING, wanted=Wanted(label=OTHER), rows=[ROW], search=COPY),
        *(Status.DUPLICATE, "not repeated for 1 further record"),
    ),
    (replace(NOTHING, search=FOUND, receipts={3: 812}), Status.UNPROCESSED, "812, 1 offset short of this record"),
    (replace(NOTHING, search=FOUND, receipts={}), Status.UNPROCESSED, "has no receipt of partition 3"),
    (replace(NOTHING, search=FOUND, receipts={3: OF_ANOTHER}), Status.UNPROCESSED, OF_ANOTHER),
    (replace(NOTHING, search=FOUND), Status.UNWRITTEN, "--read-again"),
    (replace(NOTHING, search=FOUND, quarantined=[MALFORMED]), Status.QUARANTINED, f"replay --epoch {EPOCH} --from 17"),
    (
        replace(NOTHING, wanted=Wanted(label=OTHER), rows=[ROW], search=COPY, quarantined=[REUSED]),
        *(Status.QUARANTINED, "boot or time"),
    ),
    (replace(NOTHING, audited=Audited({3: 1_000}, ["vanished"])), Status.VANISHED, "Who has removed the row"),
    (replace(NOTHING, gaps=[GAP]), Status.LOST, f"gw-1 has declared {EPOCH} 10 to 18 as lost at 2026-05-01T12:00"),
    (replace(NOTHING, audited=Audited({3: 1_000}, ["missing"])), Status.MISSING, "its epoch up to 20"),
    (replace(NOTHING, epoch=EpochFacts(10, 17, True)), Status.MISSING, "this one ended with 17"),
    (replace(NOTHING, epoch=EpochFacts(16, None, True)), Status.AHEAD, "Is gw-1 connected?"),
    (replace(NOTHING, epoch=EpochFacts(None, None, False)), Status.UNKNOWN, "gateway gw-1 has started"),
    (replace(BY_MARK, audited=Audited({3: 1_000})), Status.UNKNOWN, f"sudo oncegate trace {MARK}"),
    (
        replace(BY_MARK, search=replace(SEARCH, ends={3: (0, 500, 1_000)})),
        *(Status.UNKNOWN, "since 2026-05-01T12:00:00.000Z were read; it has older ones"),
    ),
]


@pytest.mark.parametrize(("evidence", "status", "sentence"), CASES)
def test_the_account_of_an_event_names_its_status_its_path_and_the_next_step(
    evidence: Evidence, status: Status, sentence: str
) -> None:
    found = account(evidence)
    text = "\n".join(lines(found))
    assert (found.status, sentence in text) == (status, True), text
    path = ["gateway", "topic", "receipt", "table", "quarantine", "audit"]
    places = [path.index(place) for place, _ in found.steps]
    assert places == sorted(places)


def test_a_property_that_kafkas_client_does_not_know_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    ends = ("--bootstrap-servers", "localhost:9", "--table", "events")
    assert main([MARK, *ends, "--kafka", "default.api.timeout.ms=5"]) == 1
    assert 'No such configuration property: "default.api.timeout.ms"' in capsys.readouterr().err


def test_spark_is_needed_for_delta_tables_alone() -> None:
    postgres = ["--sink", "postgres", "--connection", "file"]
    for options, needs in (([], True), (postgres, False), ([*postgres, "--audit", "audit"], True)):
        given = parse([MARK, "--bootstrap-servers", "localhost:9092", "--table", "events", *options])
        assert given.needs_spark is needs
