"""The same command on a cluster: a master and two workers, executors that are killed within a batch."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from cloud.jars import ivy
from contract.record import ClockTrust
from simulators.services import ports, session
from simulators.services.error import ServiceError
from simulators.services.install import java
from simulators.services.process import Command, Process
from simulators.services.service import Service
from tests.cloud.gateway import Gateway, readings
from tests.cloud.running import DELTA, POSTGRES, CloudSide

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.heavy]

PAIRS = 10_000
START_SECONDS_MAX = 120.0
WORKER_MEGABYTES = 1024
_EXECUTOR = b"CoarseGrainedExecutorBackend"


class SparkCluster(Service):
    """A master and workers of one core each on 127.0.0.1, with logs and work folders under one folder."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self._folder = folder.absolute()
        self._port, *web = ports.free(workers + 2)
        self.master = Process(self._command("master", web[0], "--port", str(self._port)))
        size = ("--cores", "1", "--memory", f"{WORKER_MEGABYTES}m")
        self.workers = [
            Process(self._command(f"worker-{number}", port, *size, self.url)) for number, port in enumerate(web[1:], 1)
        ]

    @property
    def url(self) -> str:
        """The value for `--master`."""
        return f"spark://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start the master, then the workers, and return once all workers are registered."""
        self.master.start()
        self.master.wait_for_log("I have been elected leader", START_SECONDS_MAX)
        for worker in self.workers:
            worker.start()
        for worker in self.workers:
            worker.wait_for_log("Successfully registered with master", START_SECONDS_MAX)

    def kill(self) -> None:
        """End all processes by SIGKILL."""
        for process in (*self.workers, self.master):
            process.kill()

    def kill_an_executor(self) -> int:
        """Kill one executor (SIGKILL) and return its pid; the worker starts another."""
        for worker in self.workers:
            for pid in session.members(worker.pid):
                if _EXECUTOR in _command_line(pid):
                    os.kill(pid, signal.SIGKILL)
                    return pid
        raise ServiceError("spark cluster: no executor runs")

    def _command(self, name: str, web_port: int, *arguments: str) -> Command:
        folder = self._folder / name
        folder.mkdir(parents=True, exist_ok=True)
        kind = "Master" if name == "master" else "Worker"
        home = ivy.pyspark_folder()
        place = () if name == "master" else ("--work-dir", str(folder))
        line = (
            str(home / "bin" / "spark-class"),
            f"org.apache.spark.deploy.{kind.lower()}.{kind}",
            *("--host", "127.0.0.1", "--webui-port", str(web_port), *place, *arguments),
        )
        environment = {
            "SPARK_HOME": str(home),
            "JAVA_HOME": str(java.home(java.require())),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_DIRS": str(folder),
        }
        return Command(f"spark {name}", line, folder / f"{name}.log", folder, environment)


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


@pytest.mark.parametrize("cloud", [DELTA, POSTGRES], indirect=True)
def test_an_executor_that_dies_between_two_evaluations_of_a_batch_loses_and_doubles_nothing(
    cloud: CloudSide, tmp_path: Path
) -> None:
    """Each event has a fresh and a late duplicate: whichever an evaluation keeps, it is one row."""
    cloud.window = "40s"
    with SparkCluster(tmp_path / "cluster") as cluster:
        cloud.master = cluster.url
        gateway, stranger = Gateway(), Gateway("gw-2", "00000000000000b2", clock=ClockTrust.UNTRUSTED)
        job = cloud.start()
        sent = 0

        def fresh_traffic_is_written() -> bool:
            nonlocal sent
            cloud.send(gateway.records(readings(1, start=sent)))
            sent += 1
            return "late=0" in job.log() or "passes=1" in job.log()

        cloud.wait(fresh_traffic_is_written, "a batch without late events")
        cloud.wait_for_receipts(sent)
        before = job.log().count("stage=write")
        events = readings(PAIRS, start=sent)
        pairs = [(gateway.record(event), stranger.record(event)) for event in events]
        cloud.send([copy for fresh, late in pairs[: PAIRS // 2] for copy in (fresh, late)], partition=0)
        cloud.send([copy for fresh, late in pairs[PAIRS // 2 :] for copy in (late, fresh)], partition=1)
        stage = "stage=looked-up" if cloud.postgres is None else "stage=write"
        cloud.wait(lambda: stage in job.log() and job.log().count("stage=write") > before, stage)
        cluster.kill_an_executor()
        cloud.wait_for_receipts(sent + 2 * PAIRS)
        cloud.wait(lambda: "has been removed" in job.log() or "Lost executor" in job.log(), "the executor's loss")
    assert cloud.ids() == [str(number) for number in range(sent + PAIRS)]
