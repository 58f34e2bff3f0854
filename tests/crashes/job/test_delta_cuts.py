"""A power cut right after a receipt takes no receipted event from the Delta table, though it takes all unflushed data.

Whole jobs with a real Kafka: their process copies the table at each flush of it, and notes each commit of receipts.
"""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from contract.topics import EVENTS
from simulators.evidence import delta
from simulators.evidence.receipts import behind
from simulators.evidence.topic import TopicError
from simulators.run.job import Job
from simulators.services.kafka.broker import Broker
from tests.cloud.gateway import Gateway, readings, send
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.heavy, pytest.mark.kafka, pytest.mark.spark]

EVENTS_PER_BATCH = 20
BATCHES = 3
BATCH_SECONDS_MAX = 900.0
TABLE, NOTES = "ONCEGATE_TEST_TABLE", "ONCEGATE_TEST_NOTES"
"""The variables that name the table, and the folder of copies and receipts, to the job's process."""


def note_flushes_and_receipts() -> None:
    """Copy the table once it is flushed, and note what is receipted; called in the job's process."""
    from cloud.runtime import disk
    from cloud.stream.kafka_admin import KafkaAdmin

    table, notes = os.environ[TABLE], Path(os.environ[NOTES])
    flush, commit = disk._flush, KafkaAdmin.commit

    def flush_and_copy(file: int, folder: str) -> None:
        flush(file, folder)
        if folder == table:
            shutil.copytree(table, notes / f"table-{len(list(notes.glob('table-*')))}")

    def commit_and_note(self: Any, group: str, offsets: Any, *more: Any) -> None:
        commit(self, group, offsets, *more)
        with (notes / "receipts").open("a") as receipts:
            print(json.dumps([len(list(notes.glob("table-*"))) - 1, sum(offsets.values())]), file=receipts)

    disk._flush = flush_and_copy
    KafkaAdmin.commit = commit_and_note  # type: ignore[method-assign, assignment]


def receipts_without_flush() -> None:
    """Note receipts that do not wait for the flush: a mutant, whose losses must be found."""
    from cloud.runtime import disk

    note_flushes_and_receipts()
    disk._flush = lambda file, folder: None


def is_written(broker: Broker, job: Job) -> bool:
    """Whether the table has the whole topic; False while the broker has no answer, as under a high load."""
    try:
        return behind(broker.bootstrap_servers, job.table) == 0
    except TopicError:
        return False


@pytest.mark.guarantee(5)
@pytest.mark.parametrize(("patch", "is_lost"), [(note_flushes_and_receipts, False), (receipts_without_flush, True)])
def test_every_receipted_event_is_in_what_was_flushed_before(
    patch: Any, is_lost: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    with Broker(tmp_path / "kafka") as broker:
        broker.create_topics(EVENTS, partitions=1)
        patched = (f"{__name__}:{patch.__name__}",)
        job = Job(tmp_path / "cloud", tmp_path / "job.log", broker.bootstrap_servers, patched)
        monkeypatch.setenv(TABLE, str(job.table))
        monkeypatch.setenv(NOTES, str(notes))
        with job:
            job.wait()
            gateway = Gateway()
            for number in range(BATCHES):
                events = readings(EVENTS_PER_BATCH, start=number * EVENTS_PER_BATCH)
                send(broker.bootstrap_servers, EVENTS, gateway.records(events), 0)
                wait_until(lambda: is_written(broker, job), f"batch {number}", BATCH_SECONDS_MAX)
            job.stop()

    receipts = [json.loads(line) for line in (notes / "receipts").read_text().splitlines()]
    assert len(receipts) >= BATCHES
    lost = [
        (copy, end)
        for copy, end in receipts
        if sorted(row.offset or 0 for row in delta.read(notes / f"table-{copy}"))[:end] != list(range(end))
    ]
    assert bool(lost) == is_lost
