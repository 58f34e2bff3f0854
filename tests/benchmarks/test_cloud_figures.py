"""The cloud's benchmarks read their figures from the contenders' logs."""

import pytest

from benchmarks.cloud import delta_log, window

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
batch=0 rows=2000 milliseconds=9000 memory=0 disk=0
batch=1 rows=2000 milliseconds=600 memory=0 disk=1000
batch=2 rows=7196000 milliseconds=20000 memory=0 disk=170000000
batch=3 rows=2000 milliseconds=3000 memory=0 disk=172800000
"""


def test_a_commit_is_held_against_the_fresh_log_of_its_own_round() -> None:
    fresh, ratio = delta_log.read_figures(COMMITS)
    assert (fresh.value, ratio.value, ratio.reached) == (1.0, 1.3, True)
    assert (ratio.details["least"], ratio.details["most"]) == (1.2, pytest.approx(1.4))
    assert "1.1 hours" in ratio.name


def test_the_cost_of_a_million_keys_is_that_beyond_an_empty_state_on_all_cores() -> None:
    batch, million, memory, disk = window.read_figures(BATCHES, cores=2)
    assert batch.value == 3.0
    assert round(million.value, 3) == round(2.4 * 2 / 7.196, 3)
    assert (memory.value, disk.value) == (1500.0, 172.8)
    assert batch.details["events_per_second"] == {"10m": 6000.0, "60m": 1000.0, "240m": 250.0}
