"""The job, start after start: the real one from its claim to its receipts, over a simulated Spark."""

from collections.abc import Callable, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

import orjson

from cloud import job
from cloud.errors import JobError, StopError
from cloud.runtime import disk
from cloud.runtime.disk import FlushedFolders
from cloud.stream import batch, kafka_admin
from cloud.stream.checkpoint import PlannedBatch
from cloud.stream.progress import Observer
from tests.schedules import spark
from tests.schedules.kafka.cluster import TOPIC, Cluster
from tests.schedules.scheduler import Process, Scheduler
from tests.schedules.threads import void

RESTART_SECONDS = 1.0
"""After which systemd starts it again."""


class Job:
    def __init__(self, scheduler: Scheduler, cluster: Cluster, random: Random, wall_ms: Callable[[], int]) -> None:
        self._scheduler = scheduler
        self._cluster = cluster
        self._random = random
        self._wall_ms = wall_ms
        self._folder = spark.CheckpointFolder()
        self._offsets_max = random.choice((2, 5, 1000))
        """Of a batch, in each partition: behind a small one the consumers fetch ahead."""
        self.table = spark.Table()
        self.process: Process | None = None

    @property
    def plans(self) -> Sequence[PlannedBatch]:
        return self._folder.plans

    def replacements(self) -> dict[Any, Any]:
        """Return what the job's modules get in place of Spark."""
        scheduler, cluster = self._scheduler, self._cluster
        return {
            kafka_admin.KafkaAdmin: lambda *_: spark.KafkaAdmin(scheduler, cluster),
            job.open_sink: lambda *_: spark.Sink(scheduler, self.table),
            job.survivors_of: lambda _spark, _settings, starting, _gateways: starting,
            job.start: self._start_query,
            disk: SimpleNamespace(local_folders=lambda *_: (), FlushedFolders=FlushedFolders),
            batch.consume: lambda survivors, horizon: void(survivors.evaluate(horizon)),
        }

    def start(self) -> None:
        self.process = Process("job")
        self._scheduler.spawn(self.process, "main", self._run)

    def kill(self, after_steps: int) -> None:
        """Kill the job at one of its next steps, and start it again later."""
        process = self.process
        if process is None or not process.alive or process.kill_after is not None:
            return
        seconds = self._random.uniform(0.1, 5.0)
        process.killed = lambda: self._scheduler.call(seconds, "job starts again", self.start)
        process.kill_after = after_steps

    def _run(self) -> None:
        settings: Any = SimpleNamespace(
            kafka=SimpleNamespace(topic=TOPIC, group="oncegate-cloud"),
            read_again=self._folder.read_again,
            succeeds=None,
            checkpoint="",
            window_seconds=spark.WINDOW_SECONDS,
            effects=None,
            gateways=None,
        )
        session: Any = SimpleNamespace(streams=SimpleNamespace(addListener=lambda _: None))
        checkpoint: Any = spark.Checkpoint(self._scheduler, self._folder)
        stop: Any = SimpleNamespace(wait=self._pause)
        try:
            job.run_on_checkpoint(session, settings, checkpoint, Observer(), stop)
        except StopError as error:
            self._scheduler.note(f"job stops {error}")
            self._folder = spark.CheckpointFolder(read_again=True)  # what its message asks the operator for
        except (JobError, spark.QueryError) as error:
            self._scheduler.note(f"job fails {error!r}")
        self._scheduler.call(RESTART_SECONDS, "job starts again", self.start)

    def _pause(self, seconds: float) -> bool:
        self._scheduler.wait(seconds, "job waits")
        return False

    def _start_query(self, starting: str, writer: Any, settings: Any) -> spark.Query:
        folder = self._folder
        writer.begin_query()
        if not folder.plans and not folder.starts:
            lows = {number: place.low for number, place in enumerate(self._cluster.partitions)}
            given = {} if starting == "earliest" else orjson.loads(starting)[TOPIC]
            folder.starts = lows | {int(number): offset for number, offset in given.items()}
        admin = spark.KafkaAdmin(self._scheduler, self._cluster)
        return spark.Query(self._scheduler, admin, self._cluster, folder, writer, self._wall_ms, self._offsets_max)
