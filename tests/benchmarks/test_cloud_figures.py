"""The cloud's benchmarks read their figures from the contenders' logs."""

from types import SimpleNamespace
from typing import cast

import pytest
from confluent_kafka import TopicPartition

from benchmarks.cloud import contest
from benchmarks.cloud.runs import Bench, Timing
from benchmarks.job import receipts, window
from simulators.services.error import ServiceError
from simulators.services.process import Process

COMMITS = """
log round=5 versions=0 seconds=1.0000
log round=5 versions=1950 seconds=1.2000
log round=6 versions=1950 seconds=4.2000
log round=6 versions=0 seconds=3.0000
log round=7 versions=0 seconds=1.0000
log round=7 versions=1950 seconds=1.3000
"""
BATCHES = """
resident=1500000000
batch=0 rows=2000 milliseconds=9000 disk=0
batch=1 rows=2000 milliseconds=600 disk=1000
batch=2 rows=7196000 milliseconds=20000 disk=170000000
batch=3 rows=2000 milliseconds=3000 disk=172800000
"""


LOG = "".join(
    f"batch={number} stage=look-up rows=20\n" * (number % 2)
    + f"batch={number} stage=done rows_in=2000 duplicates=0 seconds={1.0 + number % 2:.1f} lag=0\n"
    for number in range(24)
)


WORK = "import sys, time\nwhile time.process_time() < 0.5: pass\nprint('worked', flush=True)\nsys.stdin.read()"
SERVER = f"""
import subprocess, sys
command = [sys.executable, "-c", {WORK!r}]
subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True).wait()
"""


class SilentClient:
    """A producer and a consumer that do nothing."""

    def __init__(self, _: object) -> None:
        pass

    def produce(self, *_: object, **__: object) -> None:
        pass

    def poll(self, _: float) -> None:
        pass

    def flush(self, _: float) -> None:
        pass

    def close(self) -> None:
        pass


def test_ages_of_receipts_of_which_the_oldest_are_missing_are_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipts, "Producer", SilentClient)
    monkeypatch.setattr(receipts, "Consumer", SilentClient)
    monkeypatch.setattr(receipts, "committed", lambda *_: [TopicPartition("receipts", 0, 10)])
    bench = cast(Bench, SimpleNamespace(broker=SimpleNamespace(bootstrap_servers="-"), partitions=1))
    ended = cast(Process, SimpleNamespace(alive=False))

    with pytest.raises(ServiceError, match="0 of 1,000 records"):
        receipts._watch(bench, ended, 1)


def test_the_cost_of_a_million_keys_is_that_beyond_an_empty_state_on_all_cores() -> None:
    batch, million, memory, disk = window.read_figures(BATCHES, cores=2)
    assert batch.value == 3.0
    assert round(million.value, 3) == round(2.4 * 2 / 7.196, 3)
    assert (memory.value, disk.value) == (1500.0, 172.8)
    assert batch.details["events_per_second"] == {"10m": 6000.0, "60m": 1000.0, "240m": 250.0}


def test_the_job_is_compared_with_a_contender_in_the_rounds_that_both_have() -> None:
    job = {number: Timing(100, seconds, 2, 2) for number, seconds in enumerate((1.0, 2.0, 4.0))}
    copy = {number: Timing(100, seconds, 1, 1) for number, seconds in ((0, 2.0), (2, 4.0))}
    figures = {one.name: one for one in contest.figures({"job": job, "copy": copy})}
    rows, ratio, per_cpu = (
        figures[contest.NAMES["job"]],
        figures[f"the job by: {contest.NAMES['copy']}, wall"],
        figures[f"the job by: {contest.NAMES['copy']}, per CPU second"],
    )
    assert (rows.value, rows.details["records_per_cpu_second"]) == (50, 25)
    assert (ratio.value, ratio.details["each"], ratio.reached) == (1.5, [2.0, 1.0], True)
    assert per_cpu.value == 0.5
