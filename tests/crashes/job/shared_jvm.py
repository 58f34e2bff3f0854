"""A JVM of Spark for many jobs, one after the other: a start takes less than half of the time.

Each job is a Python process of its own, as with spark-submit, and connects to the JVM.
"""

from __future__ import annotations

import atexit
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from simulators.services.process import Command
from tests.support import changes

SETTINGS = {"spark.sql.codegen.cache.maxEntries": "2000"}
"""For this JVM: what Spark has compiled for a job serves the next ones; it keeps 100 classes by default."""
JVM_OPTIONS = "-XX:ReservedCodeCacheSize=512m"
"""With less, a quarter of the CPU time goes into removing compiled code."""
_INTEGER = struct.Struct(">i")


class SharedJvm:
    """A JVM whose changes are followed, and which ends with this process.

    `submitted` is the command of spark-submit for any of the jobs; its settings are those of all jobs.
    """

    def __init__(self, submitted: Command, job: Path, environment: Mapping[str, str]) -> None:
        folder = submitted.log_file.parent
        answer = folder / "connection"
        submit = submitted.arguments[: submitted.arguments.index(str(job))]
        place = {"_PYSPARK_DRIVER_CONN_INFO_PATH": str(answer)}  # where port and secret are written
        log = folder / "jvm.log"
        theirs, self._stdin = os.pipe()  # the JVM ends once its standard input does
        self.started = changes.start((*submit, "pyspark-shell"), {**environment, **place}, log, theirs)
        os.close(theirs)
        waiting = ("sh", "-c", f"until [ -e '{answer}' ]; do sleep 0.05; done")
        try:
            changes.run(waiting, folder / "none", environment, log, beside=(self.started,))
        except RuntimeError as error:
            self.close()
            raise RuntimeError(f"the JVM has ended: {log.read_text(errors='replace')[-3_000:]}") from error
        content = answer.read_bytes()
        (port,), secret = _INTEGER.unpack_from(content), content[2 * _INTEGER.size :].decode()
        self.environment = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
        """What connects a Python process to the JVM."""

    def close(self) -> None:
        os.close(self._stdin)
        self.started.kill()


def forget_tables_at_exit() -> None:
    """Clear Delta's cache when the launched job ends, so that the next one reads its tables anew: a patch."""

    def forget() -> None:
        gateway: Any = SparkContext._gateway
        if gateway is not None:
            gateway.jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()

    atexit.register(forget)
