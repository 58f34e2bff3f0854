"""The same command on a cluster: a master and two workers, executors that are killed within a batch."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from cloud.jars import ivy
from contract.record import ClockTrust
from simulators.services import ports, session
from simulators.services.install import java
from simulators.services.process import Command, Process
from tests.cloud.gateway import Gateway, readings
from tests.cloud.running import DELTA, POSTGRES, CloudSide

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.heavy]

PAIRS = 10_000
START_SECONDS_MAX = 120.0
WORKER_MEGABYTES = 1024
_EXECUTOR = b"CoarseGrainedExecutorBackend"


@contextmanager
def spark_cluster(folder: Path) -> Iterator[tuple[str, list[Process]]]:
    """Run a master and two workers of one core each on 127.0.0.1; yield the value for `--master`, and the workers."""
    port, *web = ports.free(4)
    url, size = f"spark://127.0.0.1:{port}", ("--cores", "1", "--memory", f"{WORKER_MEGABYTES}m")
    master = node(folder / "master", "Master", web[0], "--port", str(port))
    places = [folder / f"worker-{number}" for number in (1, 2)]
    workers = [
        node(place, "Worker", own, "--work-dir", str(place), *size, url)
        for place, own in zip(places, web[1:], strict=True)
    ]
    with ExitStack() as started:
        for process in (master, *workers):
            process.start()
            started.callback(process.kill)
        for worker in workers:
            worker.wait_for_log("Successfully registered with master", START_SECONDS_MAX)
        yield url, workers


def node(folder: Path, kind: str, web_port: int, *arguments: str) -> Process:
    folder.mkdir(parents=True)
    home = ivy.pyspark_folder()
    program = (str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind.lower()}.{kind}")
    environment = {
        "SPARK_HOME": str(home),
        "JAVA_HOME": str(java.home(java.require())),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_DIRS": str(folder),
    }
    line = (*program, "--host", "127.0.0.1", "--webui-port", str(web_port), *arguments)
    return Process(Command(f"spark {kind}", line, folder / "log", folder, environment))


def kill_an_executor(workers: list[Process]) -> None:
    """Kill one executor (SIGKILL); its worker starts another."""
    running = (pid for worker in workers for pid in session.members(worker.pid))
    executors = [pid for pid in running if _EXECUTOR in Path(f"/proc/{pid}/cmdline").read_bytes()]
    os.kill(executors[0], signal.SIGKILL)


@pytest.mark.parametrize("cloud", [DELTA, POSTGRES], indirect=True)
def test_an_executor_that_dies_between_two_evaluations_of_a_batch_loses_and_doubles_nothing(
    cloud: CloudSide, tmp_path: Path
) -> None:
    """Each event has a fresh and a late duplicate: whichever an evaluation keeps, it is one row."""
    cloud.window = "40s"
    with spark_cluster(tmp_path / "cluster") as (cloud.master, workers):
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
        kill_an_executor(workers)
        cloud.wait_for_receipts(sent + 2 * PAIRS)
        cloud.wait(lambda: "has been removed" in job.log() or "Lost executor" in job.log(), "the executor's loss")
    assert cloud.ids() == [str(number) for number in range(sent + PAIRS)]
