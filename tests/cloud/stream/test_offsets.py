import json
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cloud.committed import Committed
from cloud.errors import FlushError, KafkaError, SinkError, StopError
from cloud.runtime.disk import FlushedFolders
from cloud.settings import parse as parse_settings
from cloud.settings import seconds
from cloud.stream import offsets
from cloud.stream.batch import BatchWriter, check_clock, next_commit
from cloud.stream.checkpoint import PlannedBatch
from cloud.stream.offsets import Overlap, compare
from cloud.stream.progress import Observer
from cloud.stream.receipts import RETRY_SECONDS, Receipts
from cloud.table.commits import Commit, parse, to_json
from contract.receipt import Receipt
from contract.receipt import parse as parse_receipt
from tests.support.disks.failing_disk import UNWRITABLE, failing_disk

LAST = Commit(
    table="t",
    checkpoint="c",
    claim=2,
    batch=6,
    topic="events",
    topic_id="id",
    starts={0: 5, 1: 5},
    ends={0: 10, 1: 20},
    first={0: 3, 1: 0},
    birth=1000,
    window_seconds=60,
    epochs={0: 3},
)
PLANNED = PlannedBatch(batch=7, time_ms=5000, watermark_ms=0, starts={0: 10, 1: 20}, ends={0: 12, 1: 20})


@pytest.mark.parametrize(
    ("starts", "ends", "overlap"),
    [
        ({0: 10, 1: 20}, {0: 12, 1: 20}, Overlap.NONE),
        ({0: 10, 1: 20, 2: 0}, {0: 10, 1: 20, 2: 4}, Overlap.NONE),
        ({0: 5, 1: 5}, {0: 10, 1: 20}, Overlap.COMPLETE),
        ({0: 5, 1: 5}, {0: 9, 1: 20}, Overlap.COMPLETE),
        ({0: 5, 1: 5}, {0: 11, 1: 20}, Overlap.PARTIAL),
        ({0: 10, 1: 5}, {0: 12, 1: 6}, Overlap.PARTIAL),
    ],
)
def test_a_batch_stands_somewhere_against_the_table(
    starts: dict[int, int], ends: dict[int, int], overlap: Overlap
) -> None:
    assert compare(starts, ends, LAST) is overlap


def test_everything_is_new_to_a_new_table() -> None:
    assert compare({0: 4}, {0: 9}, replace(LAST, starts={}, ends={}, first={})) is Overlap.NONE


@pytest.mark.parametrize("starts", [{0: 11, 1: 20}, {0: 10}])
def test_a_gap_stops(starts: dict[int, int]) -> None:
    with pytest.raises(StopError, match="the table has read up to"):
        compare(starts, {0: 30, 1: 30}, LAST)


def test_a_new_checkpoint_starts_where_the_table_ends() -> None:
    log = {0: (0, 50), 1: (0, 50), 2: (0, 50)}
    assert offsets.starting_offsets("events", None, log) == "earliest"
    assert json.loads(offsets.starting_offsets("events", LAST, log)) == {"events": {"0": 10, "1": 20, "2": -2}}


@pytest.mark.guarantee(5)
@pytest.mark.parametrize(
    ("topic_id", "log", "message"),
    [
        ("id", {0: (12, 50), 1: (0, 50)}, "has deleted offsets 10 to 11.*--read-again"),
        ("another", {0: (0, 50), 1: (0, 50)}, "another"),
    ],
)
def test_a_topic_that_has_lost_records_stops(topic_id: str, log: dict[int, tuple[int, int]], message: str) -> None:
    with pytest.raises(StopError, match=message):
        offsets.check_log("events", topic_id, LAST, log)


@pytest.mark.guarantee(5)
@pytest.mark.parametrize(
    ("planned", "log", "message"),
    [
        (PLANNED, {0: (11, 50), 1: (0, 50)}, "partition 0: its retention has deleted offsets 10 to 10, which batch 7"),
        (PLANNED, {0: (12, 12), 1: (0, 50)}, "offsets 10 to 11.*--read-again"),
        (
            replace(PLANNED, ends={0: 12, 1: 20, 2: 4}),
            {0: (0, 12), 1: (0, 20), 2: (1, 4)},
            "partition 2.*offsets 0 to 0",
        ),
    ],
)
def test_a_planned_batch_whose_records_are_deleted_stops(
    planned: PlannedBatch, log: dict[int, tuple[int, int]], message: str
) -> None:
    with pytest.raises(StopError, match=message):
        offsets.check_plan("events", planned, log)


def test_a_planned_batch_whose_records_are_there_is_run_again() -> None:
    offsets.check_plan("events", None, {0: (11, 50)})
    offsets.check_plan("events", PLANNED, {0: (10, 50), 1: (30, 50)})  # nothing is read of partition 1


def test_a_commit_comes_back_from_its_metadata() -> None:
    assert parse(to_json(LAST)) == LAST
    assert all(parse(text) is None for text in (None, "", "compacted", "7", '{"a":1}'))
    with pytest.raises(StopError, match="newer job"):
        parse('{"oncegate":99}')


def test_a_commit_of_another_release_may_have_more_entries_and_lack_those_with_a_default() -> None:
    said = json.loads(to_json(LAST))
    assert parse(json.dumps(said | {"newer": 1})) == LAST
    lacking = {name: value for name, value in said.items() if name not in {"birth", "window_seconds", "epochs"}}
    assert parse(json.dumps(lacking)) == replace(LAST, birth=None, window_seconds=None, epochs={})


def test_versions_grow_with_claims_and_batches() -> None:
    own = [replace(LAST, claim=claim, batch=batch).version for claim in (1, 2) for batch in (-1, 0, 1, 1 << 39)]
    assert own == sorted(set(own))


def test_the_next_commit_keeps_first_and_birth() -> None:
    commit = next_commit(LAST, replace(PLANNED, starts={0: 10, 1: 20, 2: 0}, ends={0: 12, 1: 20, 2: 3}), 60, {0: 4})
    assert (commit.batch, commit.ends, commit.first) == (7, {0: 12, 1: 20, 2: 3}, {0: 3, 1: 0, 2: 0})
    assert (commit.birth, commit.window_seconds, commit.epochs) == (1000, 60, {0: 4})


def test_a_batch_that_overlaps_takes_nothing_back() -> None:
    commit = next_commit(LAST, replace(PLANNED, starts={0: 5, 1: 5}, ends={0: 12, 1: 6}), 60, {})
    assert commit.ends == {0: 12, 1: 20}


@pytest.mark.parametrize(("window_seconds", "birth"), [(61, 5000), (60, 1000), (59, 1000)])
def test_a_window_that_grows_is_a_new_birth(window_seconds: int, birth: int) -> None:
    assert next_commit(LAST, PLANNED, window_seconds, {}).birth == birth


def test_a_batch_time_at_the_watermark_stops() -> None:
    check_clock(replace(PLANNED, watermark_ms=4999))
    with pytest.raises(StopError, match="clock has gone back"):
        check_clock(replace(PLANNED, watermark_ms=5000))


@pytest.mark.guarantee(5)
def test_of_a_topic_whose_settings_are_wrong_by_now_no_batch_is_written() -> None:
    """At the job's start the topic may have been empty."""

    def refuse() -> None:
        raise StopError("LogAppendTime")

    checkpoint: Any = SimpleNamespace(planned=lambda _: PLANNED)
    log: Any = SimpleNamespace(check_settings=refuse)
    absent: Any = None
    with pytest.raises(StopError, match="LogAppendTime"):
        BatchWriter(checkpoint, absent, absent, LAST, 60, log, Observer())(absent, 7)


@pytest.mark.parametrize(
    ("text", "value"), [("90s", 90), ("10m", 600), ("2h", 7200), ("7d", 604_800), ("10 minutes", 600)]
)
def test_durations_are_read(text: str, value: int) -> None:
    assert seconds(text) == value


REQUIRED = ("--bootstrap-servers", "k:9092", "--table", "/t/", "--checkpoint", "/c")


def test_the_quarantine_stands_beside_the_table() -> None:
    assert parse_settings(REQUIRED).tables.quarantine == "/t_quarantine"
    assert parse_settings([*REQUIRED, "--quarantine", "/q"]).tables.quarantine == "/q"


@pytest.mark.parametrize(
    "nested",
    [("--quarantine", "/t/q"), ("--checkpoint", "/t/c"), ("--checkpoint", "/t"), ("--checkpoint", "/t_quarantine/c")],
)
def test_a_folder_within_another_is_refused_since_maintenance_would_remove_its_files(nested: tuple[str, str]) -> None:
    parse_settings([*REQUIRED, "--quarantine", "/t2", "--checkpoint", "/t.c"]).check_folders()
    with pytest.raises(StopError, match="is within /t"):
        parse_settings([*REQUIRED, *nested]).check_folders()


class Kafka:
    """Takes every receipt, and leaves every log as it is."""

    def __init__(self) -> None:
        self.given: list[dict[int, str]] = []
        self.group: dict[int, Committed] = {}
        self.errors: list[Exception] = []

    def commit(self, _group: str, offsets: dict[int, int], metadata: dict[int, str], epochs: dict[int, int]) -> None:
        if self.errors:
            raise self.errors.pop()
        self.given.append(metadata)
        self.group |= {number: Committed(offsets[number], epochs.get(number), metadata[number]) for number in metadata}

    def committed(self, _group: str, _partitions: Iterable[int]) -> dict[int, Committed]:
        return dict(self.group)

    def check(self, read: Commit, _ends: dict[int, int]) -> dict[int, int]:
        return read.epochs


def test_receipts_are_repeated_when_due(monkeypatch: pytest.MonkeyPatch) -> None:
    moment, kafka, ends = 0.0, Kafka(), list[Exception]()
    monkeypatch.setattr("cloud.stream.receipts.time", SimpleNamespace(monotonic=lambda: moment))

    def check() -> None:
        if ends:
            raise ends.pop(0)

    receipts = Receipts(kafka, kafka, "g", "old", check)  # type: ignore[arg-type]  # its needs
    receipts.repeat()
    receipts.commit(LAST)
    moment = 3599.0
    receipts.repeat()
    moment = 3600.0
    receipts.repeat()
    assert kafka.given == [{0: str(Receipt("t", 3, "id", "old")), 1: str(Receipt("t", 0, "id", "old"))}] * 2
    ends += SinkError("no answer"), StopError("it was dropped")
    moment = 7200.0
    receipts.repeat()
    moment += RETRY_SECONDS
    with pytest.raises(StopError):
        receipts.repeat()
    assert len(kafka.given) == 2


@pytest.mark.guarantee(4)
def test_the_note_that_effects_fail_moves_no_receipt_and_stays_until_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moment, kafka = 0.0, Kafka()
    monkeypatch.setattr("cloud.stream.receipts.time", SimpleNamespace(monotonic=lambda: moment, time=time.time))
    receipts = Receipts(kafka, kafka, "g", None)  # type: ignore[arg-type]  # its needs
    first = replace(LAST, topic_id="nDCRGbaQT4C6Yy0VbBGzCg", epochs={0: 4, 1: 5})
    last = replace(first, ends={0: 99, 1: 99}, epochs={0: 6, 1: 6})

    def group() -> list[tuple[int, int | None, bool]]:
        read = [(one, parse_receipt(one.metadata)) for _, one in sorted(kafka.group.items())]
        return [(one.offset, one.leader_epoch, bool(it and it.failing_since)) for one, it in read]

    kafka.errors.append(KafkaError("no answer"))
    receipts.note_failing(first)
    receipts.note_failing(first)
    assert group() == [(LAST.first[0], 4, True), (LAST.first[1], 5, True)]  # nothing is covered
    receipts.commit(first)
    given = [(LAST.ends[0], 4), (LAST.ends[1], 5)]
    assert group() == [(*one, False) for one in given]
    for one in (receipts, Receipts(kafka, kafka, "g", None)):  # type: ignore[arg-type]  # as after a kill
        one.note_failing(last)
        assert group() == [(*one, True) for one in given]
    noted, moment = kafka.given[-1], 3600.0
    assert len(kafka.given) == 3
    receipts.repeat()
    assert kafka.given[3:] == [noted]
    foreign = {0: Committed(50, 4, ""), 1: Committed(50, 4, str(Receipt("other", 0, last.topic_id)))}
    kafka.group = dict(foreign)
    receipts.note_failing(last)
    assert kafka.group == foreign
    receipts.commit(last)
    assert group() == [(99, 6, False)] * 2


@pytest.mark.guarantee(5)
def test_after_a_failed_flush_nothing_is_receipted_while_the_job_ends(tmp_path: Path) -> None:
    """Linux reports a write error once: a second syncfs would succeed. A batch may end after `repeat` has failed."""
    kafka = Kafka()
    with failing_disk(tmp_path) as folder, FlushedFolders([str(folder)]) as folders:
        receipts = Receipts(kafka, kafka, "g", None, lambda: None, folders.flush)  # type: ignore[arg-type]  # its needs
        (folder / "events").write_bytes(UNWRITABLE)
        with pytest.raises(FlushError):
            receipts.commit(LAST)
        receipts.repeat()
        with pytest.raises(FlushError):
            receipts.commit(LAST)
    assert kafka.given == []
