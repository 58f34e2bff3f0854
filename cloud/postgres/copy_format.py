"""Rows in the text format of PostgreSQL's COPY, by native functions of Spark."""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, StringType, StructType, TimestampType

from cloud.postgres.statements import OWN
from cloud.runtime import jvm
from cloud.table import layout, rows
from cloud.table.transform import Transformed, reason
from contract.fields import OBJECTS

STAGED = {name: rows.TYPES[kind] for name, kind in layout.STAGED.items()}

_PLACE = ["kafka_partition", "kafka_offset"]
_NULL = r"\N"
_NUL, _REPLACEMENT = "\x00", "\ufffd"
_ESCAPES = {"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"}
_MOMENT = "yyyy-MM-dd HH:mm:ss.SSSSSSxxx"


def own_columns(columns: StructType) -> dict[str, DataType]:
    """Return the names under which a transform's columns are staged, and their types."""
    return {f"{OWN}{number}": field.dataType for number, field in enumerate(columns)}


def with_transformed(made: Transformed) -> DataFrame:
    """Return what was staged, with the transform's columns and the reasons of its rejected rows."""
    names = zip(own_columns(made.columns).items(), made.columns, strict=True)
    own = [without_nul(field.name, kind).alias(name) for (name, kind), field in names]
    refused = F.replace(reason(), F.lit(_NUL), F.lit(_REPLACEMENT)).alias("refused")
    joined = made.entered.join(made.rows.select(*_PLACE, *own, refused), on=_PLACE, how="left")
    return joined.withColumn("reason", F.coalesce("reason", "refused")).drop("refused")


def staged(survivors: DataFrame, devices: DataFrame | None) -> DataFrame:
    """Return the survivors with the columns STAGED.

    PostgreSQL supports NUL neither in a text nor, as an escape, in JSON: it becomes U+FFFD, and the row keeps its raw
    bytes.
    """
    also = [name for name in STAGED if name not in rows.COLUMNS]
    whole = survivors.withColumn("headers", F.to_json("headers")).withColumn("fresh", F.col("fresh").cast("string"))
    decoded = rows.decode(whole, devices, also)
    has_nul = F.lit(False)
    for name in layout.TEXTS:
        for form in (_NUL, layout.NUL_IN_JSON) if name in OBJECTS else (_NUL,):
            has_nul = has_nul | F.coalesce(F.contains(F.col(name), F.lit(form)), F.lit(False))
    raw = F.when(has_nul, F.col("value")).otherwise(F.col("raw"))
    return decoded.withColumn("raw", raw).select(*(without_nul(name, kind) for name, kind in STAGED.items()))


def lines(frame: DataFrame, columns: Mapping[str, DataType]) -> DataFrame:
    """Return each row as one line, with its line feed."""
    return frame.select(F.concat(F.concat_ws("\t", *(_field(n, k) for n, k in columns.items())), F.lit("\n")))


def _field(name: str, kind: DataType) -> Column:
    return F.coalesce(_text(F.col(jvm.quoted(name)), kind), F.lit(_NULL))


def _text(value: Column, kind: DataType) -> Column:
    if isinstance(kind, BinaryType):
        return F.concat(F.lit(r"\\x"), F.lower(F.hex(value)))
    if isinstance(kind, TimestampType):
        return F.date_format(value, _MOMENT)
    if not isinstance(kind, StringType):
        return value.cast("string")
    for character, escaped in _ESCAPES.items():
        value = F.replace(value, F.lit(character), F.lit(escaped))
    return value


def without_nul(name: str, kind: DataType) -> Column:
    """Return a column, in whose texts NUL is replaced."""
    text = F.col(jvm.quoted(name))
    if not isinstance(kind, StringType):
        return text
    if name in OBJECTS:
        replaced = F.regexp_replace(text, layout.NUL_PATTERN, f"$1{_REPLACEMENT}")
        text = F.when(F.contains(text, F.lit(layout.NUL_IN_JSON)), replaced).otherwise(text)
    return F.replace(text, F.lit(_NUL), F.lit(_REPLACEMENT)).alias(name)
