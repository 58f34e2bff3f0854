"""The checkpoint's folder: Spark's own offset log, and our claim beside it.

Read and written through Hadoop's file systems, so that it may lie wherever Spark can put it.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql import SparkSession

from cloud.errors import StopError
from cloud.platform import jvm
from cloud.table.commits import Offsets

_CLAIM = "oncegate-claim.json"
_FLUSH_FAILED = "oncegate-flush-failed"
_VERSION = "v1"
"""Of the logs of offsets and commits, in Spark 3 and 4.0; their lines are Spark's own, and no interface."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Which checkpoint this is, and under which number it has claimed the table."""

    checkpoint: str
    number: int


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """What Spark planned for a batch before it ran it; moments in milliseconds since 1970 UTC."""

    batch: int
    time_ms: int
    watermark_ms: int
    starts: Offsets
    ends: Offsets


class Checkpoint:
    """One checkpoint folder."""

    def __init__(self, spark: SparkSession, path: str, topic: str) -> None:
        self._spark = spark
        self._topic = topic
        self._folder = path
        self._files = jvm.file_system(spark, path)

    def planned(self, batch: int) -> PlannedBatch:
        """Read from the offset log what a batch holds."""
        log = self._lines(f"offsets/{batch}")
        if log is None:
            raise StopError(f"checkpoint {self._folder}: batch {batch} is not in the offset log")
        times = json.loads(log[0])
        return PlannedBatch(
            batch, times["batchTimestampMs"], times["batchWatermarkMs"], self._starts(batch), self._offsets(log[1])
        )

    def latest_batch(self) -> int | None:
        """Return the id of the latest batch in the offset log; None where there is none."""
        return self._latest("offsets")

    def watermark(self) -> int:
        """Return the watermark of the next batch, in milliseconds; what is planned before that time is dropped."""
        committed = self._latest("commits")
        if committed is None or (log := self._lines(f"commits/{committed}")) is None:
            return 0
        return int(json.loads(log[0])["nextBatchWatermarkMs"])

    def forget_batch_below_watermark(self) -> int | None:
        """Remove the plan of a batch of which Spark would drop everything, for another plan at a right time.

        Return its id; None where there is no such plan. Nothing of such a batch is ever committed.
        """
        batch = self.latest_batch()
        if batch is None or batch == self._latest("commits"):
            return None
        planned = self.planned(batch)
        if planned.time_ms > planned.watermark_ms:
            return None
        self._files.delete(self._path(f"offsets/{batch}"), False)
        return batch

    def read_claim(self) -> Claim | None:
        """Return this checkpoint's claim; None where it has made none."""
        text = self._read(_CLAIM)
        return None if text is None else Claim(**json.loads(text))

    def mark_flush_failed(self, reason: str) -> None:
        """Write down that a flush has failed, for every later start."""
        self._write(self._path(_FLUSH_FAILED), reason)

    def check_flush(self) -> None:
        """Raise StopError where a flush has failed, until somebody has looked."""
        if (reason := self._read(_FLUSH_FAILED)) is not None:
            raise StopError(
                f"{reason}. A flush that succeeds now would prove nothing: what was written since the last receipt may "
                f"be lost. Check disk and table, then remove {self._folder}/{_FLUSH_FAILED}"
            )

    def write_claim(self, claim: Claim) -> None:
        """Write down what is about to be claimed, whole or not at all."""
        temporary = self._path(f"{_CLAIM}.{uuid.uuid4().hex}.tmp")
        self._files.mkdirs(self._path(""))
        self._write(temporary, json.dumps(asdict(claim)))
        self._files.delete(self._path(_CLAIM), False)
        if not self._files.rename(temporary, self._path(_CLAIM)):
            raise StopError(f"checkpoint {self._folder}: cannot write {_CLAIM}")

    def _latest(self, log: str) -> int | None:
        folder = self._path(log)
        if not self._files.exists(folder):
            return None
        names = [entry.getPath().getName() for entry in self._files.listStatus(folder)]
        return max((int(name) for name in names if name.isdigit()), default=None)

    def _starts(self, batch: int) -> Offsets:
        """Return where a batch starts: where the one before it ends; partitions that are new to it are left out."""
        log = self._lines(f"offsets/{batch - 1}" if batch else "sources/0/0")
        if log is None:
            raise StopError(f"checkpoint {self._folder}: the offsets before batch {batch} are missing")
        return self._offsets(log[1 if batch else 0])

    def _lines(self, name: str) -> list[str] | None:
        """Return what stands below the version in one of Spark's own files; None where there is none."""
        text = self._read(name)
        if text is None:
            return None
        version, *lines = text.split("\n")
        if version.lstrip("\x00") != _VERSION:
            raise StopError(
                f"checkpoint {self._folder}: {name} has the version {version!r}, this job reads {_VERSION}: another "
                "version of Spark has written it. Go on with that one, or start with a new checkpoint"
            )
        return lines

    def _offsets(self, text: str) -> Offsets:
        return {int(partition): offset for partition, offset in json.loads(text).get(self._topic, {}).items()}

    def _read(self, name: str) -> str | None:
        return jvm.read_text(self._spark, f"{self._folder}/{name}")

    def _write(self, path: Any, text: str) -> None:
        stream = self._files.create(path, True)
        stream.write(bytearray(text.encode()))
        stream.close()

    def _path(self, name: str) -> Any:
        return jvm.hadoop_path(self._spark, f"{self._folder}/{name}" if name else self._folder)
