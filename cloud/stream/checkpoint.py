"""The checkpoint's folder: Spark's offset log and commit log, and the job's claim.

Accessed through Hadoop's file systems, so that it may be wherever Spark can write.
"""

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.sql import SparkSession

from cloud.errors import FlushError, StopError
from cloud.runtime import jvm
from cloud.runtime.disk import FlushedFolders
from cloud.table.commits import Offsets
from contract.notes import read_note

_CLAIMS = "oncegate-claims"
"""The folder with a file for each claim, named by its number: none is ever replaced, so that no kill leaves none."""
_EFFECTS_DONE = "oncegate-effects-done"
_FLUSH_FAILED = "oncegate-flush-failed"
_PROBE = "oncegate-probe"
_VERSION = "v1"
"""The version of both logs in Spark 3 to 4.2; their format is internal to Spark, not an interface."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A checkpoint's id, and the number under which it has claimed the table."""

    checkpoint: str
    number: int


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """Spark's plan of a batch, written before the batch runs; times in milliseconds since 1970 UTC."""

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
        """Return the plan of a batch from the offset log; raise StopError where it is missing."""
        log = self._lines(f"offsets/{batch}")
        if log is None:
            raise StopError(f"checkpoint {self._folder}: batch {batch} is not in the offset log")
        starts = self._starts(batch)
        with self._whole(f"offsets/{batch}"):
            times = json.loads(log[0])
            return PlannedBatch(
                batch, times["batchTimestampMs"], times["batchWatermarkMs"], starts, self._offsets(log[1])
            )

    def latest_batch(self) -> int | None:
        """Return the id of the latest batch in the offset log; None where there is none."""
        return self._latest("offsets")

    def unfinished(self) -> PlannedBatch | None:
        """Return the plan of the batch that Spark runs again at the next start; None where there is none."""
        batch = self.latest_batch()
        return None if batch is None or batch == self._latest("commits") else self.planned(batch)

    def watermark(self) -> int:
        """Return the watermark of the next batch, in milliseconds; Spark drops a batch planned before that time."""
        committed = self._latest("commits")
        if committed is None or (log := self._lines(f"commits/{committed}")) is None:
            return 0
        with self._whole(f"commits/{committed}"):
            return int(json.loads(log[0])["nextBatchWatermarkMs"])

    def forget_batch_below_watermark(self) -> int | None:
        """Remove the plan of a batch whose records Spark would all drop, so that it is planned again.

        Return the batch's id; None where there is no such plan. No part of such a batch is ever committed.
        """
        planned = self.unfinished()
        if planned is None or planned.time_ms > planned.watermark_ms:
            return None
        self._files.delete(self._path(f"offsets/{planned.batch}"), False)
        return planned.batch

    def read_claim(self) -> Claim | None:
        """Return this checkpoint's latest claim; None where there is none."""
        latest = self._latest(_CLAIMS)
        if latest is None or (text := self._read(f"{_CLAIMS}/{latest}")) is None:
            return None
        with self._whole(f"{_CLAIMS}/{latest}"):
            return read_note(Claim, json.loads(text))

    def flush(self, folders: FlushedFolders) -> None:
        """Flush the folders to disk; record a failure, so that later starts stop, and raise FlushError."""
        try:
            folders.flush()
        except FlushError as error:
            with suppress(Py4JJavaError):  # where it cannot be recorded, `check_flush` cannot write either
                self._write(self._path(_FLUSH_FAILED), str(error))
            raise

    def check_flush(self) -> None:
        """Raise StopError where a flush has failed and its record has not been removed since, or could not be made.

        After an I/O error a file system may become read-only. It refuses the record, and reports no error of a flush.
        """
        try:
            self._write(self._path(_PROBE), _PROBE)
            self._files.delete(self._path(_PROBE), False)
        except Py4JJavaError as error:
            raise StopError(
                f"checkpoint {self._folder}: cannot be written: {error.java_exception}. If its disk has failed, data "
                "written since the last receipt may be lost: check disk and table before the next start"
            ) from error
        if (reason := self._read(_FLUSH_FAILED)) is not None:
            raise StopError(
                f"{reason}. A flush that succeeds now proves nothing: data written since the last receipt may be lost. "
                f"Check disk and table, then remove {self._folder}/{_FLUSH_FAILED}"
            )

    def read_done(self) -> str | None:
        """Return the key of the latest rows whose effects are done; None where there is none, or it is not whole."""
        try:
            return jvm.read_text(self._spark, f"{self._folder}/{_EFFECTS_DONE}")
        except Py4JJavaError:
            return None

    def write_done(self, key: str) -> None:
        """Keep the key of rows whose effects are done."""
        self._write(self._path(_EFFECTS_DONE), key)

    def write_claim(self, claim: Claim) -> None:
        """Write the claim atomically, before it is made in the table."""
        temporary = self._path(f"{_CLAIMS}/.{claim.number}.{uuid.uuid4().hex}.tmp")
        self._files.mkdirs(self._path(_CLAIMS))
        self._write(temporary, json.dumps(asdict(claim)))
        if not self._files.rename(temporary, self._path(f"{_CLAIMS}/{claim.number}")):
            raise StopError(f"checkpoint {self._folder}: cannot write {_CLAIMS}/{claim.number}")

    def _latest(self, log: str) -> int | None:
        folder = self._path(log)
        if not self._files.exists(folder):
            return None
        names = [entry.getPath().getName() for entry in self._files.listStatus(folder)]
        return max((int(name) for name in names if name.isdigit()), default=None)

    def _starts(self, batch: int) -> Offsets:
        """Return where a batch starts, which is where the one before ends; new partitions are left out."""
        name = f"offsets/{batch - 1}" if batch else "sources/0/0"
        log = self._lines(name)
        if log is None:
            raise StopError(f"checkpoint {self._folder}: the offsets before batch {batch} are missing")
        with self._whole(name):
            return self._offsets(log[1 if batch else 0])

    def _lines(self, name: str) -> list[str] | None:
        """Return the lines below the version in one of Spark's files; None where the file does not exist."""
        text = self._read(name)
        if text is None:
            return None
        version, *lines = text.lstrip("\x00").split("\n")
        if not version:
            raise self._torn(name, "it is empty")
        if version != _VERSION:
            raise StopError(
                f"checkpoint {self._folder}: {name} has the version {version!r}, this job reads {_VERSION}: another "
                "version of Spark has written it. Continue with that version, or start with a new checkpoint"
            )
        return lines

    def _offsets(self, text: str) -> Offsets:
        return {int(partition): offset for partition, offset in json.loads(text).get(self._topic, {}).items()}

    def _read(self, name: str) -> str | None:
        try:
            return jvm.read_text(self._spark, f"{self._folder}/{name}")
        except Py4JJavaError as error:
            if "ChecksumException" not in (text := str(error.java_exception)):
                raise
            raise self._torn(name, text) from error

    @contextmanager
    def _whole(self, name: str) -> Iterator[None]:
        """Raise StopError where the content of a file cannot be read."""
        try:
            yield
        except (ValueError, LookupError, TypeError) as error:
            raise self._torn(name, repr(error)) from error

    def _torn(self, name: str, cause: str) -> StopError:
        return StopError(
            f"checkpoint {self._folder}: {name} is not whole: {cause}. A power cut before its flush does that. Start "
            "with a new checkpoint, which begins where the table ends. If no power was cut, check the disk first"
        )

    def _write(self, path: Any, text: str) -> None:
        stream = self._files.create(path, True)
        stream.write(bytearray(text.encode()))
        stream.close()

    def _path(self, name: str) -> Any:
        return jvm.hadoop_path(self._spark, f"{self._folder}/{name}")
