"""What the latest audit has found, by its tables."""

from dataclasses import asdict
from functools import reduce

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from cloud.errors import StopError
from cloud.tracing.facts import Audited, Label, Wanted

_LABEL = ("gateway", "epoch", "sequence")


class Audits:
    """The tables of an audit's folder."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark = spark
        self._folder = folder

    def read(self, wanted: Wanted, label: Label | None, topic_id: str) -> Audited:
        """Return what the latest audit knows of an event, by its fingerprint or its label."""
        offsets = self._read("offsets").filter(F.col("topic_id") == topic_id).collect()
        duplicates = self._read("duplicates").filter(_named(wanted, label)).limit(1).collect()
        unwritten = self._read("unwritten").filter(_named(wanted, label)).limit(1).collect()
        of = [Label(*(row[f"of_{name}"] for name in _LABEL)) for row in duplicates]
        places = [(row["kafka_partition"], row["kafka_offset"]) for row in unwritten]
        named = label or next((Label(*(row[name] for name in _LABEL)) for row in (*duplicates, *unwritten)), None)
        return Audited(
            {row["kafka_partition"]: row["end"] for row in offsets},
            [] if named is None else self._statuses(named),
            of[0] if of else None,
            places[0] if places else None,
        )

    def _statuses(self, label: Label) -> list[str]:
        within = F.lit(label.sequence).between(F.col("first"), F.col("last"))
        is_epoch = (F.col("gateway") == F.lit(label.gateway)) & (F.col("epoch") == label.epoch)
        found = self._read("ranges").filter(is_epoch & within).select("status").distinct().collect()
        return sorted(row["status"] for row in found)

    def _read(self, name: str) -> DataFrame:
        try:
            return self._spark.read.format("delta").load(f"{self._folder}/audit_{name}")
        except AnalysisException as error:
            raise StopError(
                f"--audit {self._folder}: it has no table audit_{name}; it is the audit's --output"
            ) from error


def _named(wanted: Wanted, label: Label | None) -> Column:
    parts = [] if wanted.fingerprint is None else [F.col("fingerprint") == wanted.fingerprint]
    if label is not None:
        equal = (F.col(name) == F.lit(value) for name, value in asdict(label).items())
        parts.append(reduce(lambda one, other: one & other, equal))
    return reduce(lambda one, other: one | other, parts)
