"""The cloud's benchmarks read their figures from the contenders' logs."""

from benchmarks.cloud import contest
from benchmarks.cloud.runs import Timing
from benchmarks.job import window

BATCHES = """
resident=1500000000
batch=0 rows=2000 milliseconds=9000 disk=0
batch=1 rows=2000 milliseconds=600 disk=1000
batch=2 rows=7196000 milliseconds=20000 disk=170000000
batch=3 rows=2000 milliseconds=3000 disk=172800000
"""


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
