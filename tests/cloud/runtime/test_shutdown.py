"""A job that receives a stop request before its stream has begun."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulators.services.spark import submit
from tests.support.waiting import log_bytes, wait_for_end, wait_for_work

STANDSTILL_SECONDS_MAX = 180.0
NOT_ASKED = 3
JOB = f"""
import sys
from cloud.session import open_session
from cloud.runtime.shutdown import StopRequest

stop = StopRequest()
stop.listen(open_session())
print("stage=listening", flush=True)
sys.exit(0 if stop.wait(600) else {NOT_ASKED})
"""


@pytest.mark.heavy
@pytest.mark.spark
def test_a_request_that_only_the_java_machine_hears_ends_a_job_that_has_no_stream_yet(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(JOB)
    job = submit(script, (), tmp_path)
    try:
        wait_for_work(
            job,
            lambda: job.log().count("stage=listening"),
            1,
            "listens",
            STANDSTILL_SECONDS_MAX,
            work=lambda: log_bytes(job),
        )
        job.request_end()
        assert wait_for_end(job, STANDSTILL_SECONDS_MAX) == 0
        assert "Exception" not in job.log()
    finally:
        job.kill()
