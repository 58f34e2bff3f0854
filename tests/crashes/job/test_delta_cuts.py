"""The cloud job with its Delta table on a disk that forgets: no power cut takes a receipted event from the table."""

import json

import pytest

from tests.crashes.running import run

pytestmark = [pytest.mark.heavy, pytest.mark.kafka, pytest.mark.spark, pytest.mark.usefixtures("mountable")]


def test_no_power_cut_takes_a_receipted_event_from_the_table() -> None:
    done = run("job.delta_cuts", "--cuts", "1000")
    assert done.returncode == 0
    found = json.loads(done.stdout)
    assert found["steps"]["Ack"] >= 3
    assert sum(found["cuts"].values()) == 1_000


def test_receipts_that_do_not_wait_for_the_flush_are_revealed() -> None:
    done = run("job.delta_cuts", "--cuts", "200", "--seed", "1", "--mutant", "receipts_without_flush")
    assert done.returncode == 1
    assert "is receipted and not there" in done.stderr
