"""Descriptions of devices: a file that is joined to the rows after the dedup."""

import logging
from collections import Counter
from functools import partial

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StringType

from cloud.errors import StopError
from cloud.renewed import Renewed
from cloud.runtime import jvm
from cloud.table import layout

DEVICES_MAX = 1_000_000
"""The limit, since the file is broadcast to every executor with each batch."""

logger = logging.getLogger(__name__)


class Devices:
    """The devices, read at the start and again when the file has changed."""

    def __init__(self, spark: SparkSession, path: str | None) -> None:
        """Read the file; raise StopError where it cannot be read."""
        self._spark = spark
        self._file: Renewed[DataFrame] | None = None
        if path is not None:
            self._file = Renewed("devices", "devices", partial(self._look, path), partial(self._read, path))

    def frame(self) -> DataFrame | None:
        """Return the present devices: the columns device and layout.DEVICE, each device once; None without a file."""
        return None if self._file is None else self._file.present()

    def _look(self, path: str) -> tuple[int, int]:
        """Return the file's modification time in milliseconds, and its size in bytes."""
        try:
            status = jvm.file_system(self._spark, path).getFileStatus(jvm.hadoop_path(self._spark, path))
        except Py4JJavaError as error:
            raise StopError(f"devices {path}: {error.java_exception}") from error
        return int(status.getModificationTime()), int(status.getLen())

    def _read(self, path: str) -> DataFrame:
        try:
            found = read(self._spark, path).limit(DEVICES_MAX + 1).collect()
        except jvm.FAILURES as error:
            raise StopError(f"devices {path}: cannot be read: {str(error).splitlines()[0]}") from error
        if len(found) > DEVICES_MAX:
            raise StopError(f"devices {path}: more than {DEVICES_MAX} devices")
        device, times = Counter(row["device"] for row in found).most_common(1)[0] if found else ("", 1)
        if times > 1:
            raise StopError(f"devices {path}: {device} is listed {times} times")
        logger.info("devices=%d file=%s", len(found), path)
        schema = ", ".join(f"{name} string" for name in ("device", *layout.DEVICE))
        return self._spark.createDataFrame(found, schema)


def read(spark: SparkSession, path: str) -> DataFrame:
    """Read Parquet (by the file's name) or CSV with a header; other columns are ignored, missing ones are null."""
    if path.endswith(".parquet"):
        found = spark.read.parquet(path)
    else:
        found = spark.read.csv(path, header=True, inferSchema=False, multiLine=True, escape='"', enforceSchema=False)
    if "device" not in found.columns:
        raise StopError(f"devices {path}: no column device among {', '.join(found.columns)}")
    text = {
        field.name: F.array_join(field.name, ",") if isinstance(field.dataType, ArrayType) else F.col(field.name)
        for field in found.schema
    }
    columns = {"device": "device", **layout.DEVICE}
    chosen = [text.get(name, F.lit(None)).cast(StringType()).alias(column) for column, name in columns.items()]
    return found.select(*chosen).filter(F.col("device").isNotNull())


def join(rows: DataFrame, devices: DataFrame) -> DataFrame:
    """Return the rows with the layout.DEVICE of their devices; null where the device is not listed."""
    return rows.drop(*layout.DEVICE).join(F.broadcast(devices), on="device", how="left")
