"""What `--effects` may use (docs/processing.md): each writes rows, and says what a second call under one key does."""

from collections.abc import Sequence
from pathlib import Path

from psycopg import sql
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cloud.http_calls import post
from cloud.postgres.connection import connected, durable_transaction, identifier, read_connection
from cloud.postgres.copy_format import lines, without_nul
from cloud.runtime import jvm

__all__ = ["append_to_delta", "insert_into_postgres", "merge_into_delta", "post", "send_to_topic"]

_KEYS = "_keys"
_COMMIT_NUMBER = "-"
_WAYS = {
    "sum": "coalesce(t.{0} + s.{0}, t.{0}, s.{0})",
    "min": "least(t.{0}, s.{0})",
    "max": "greatest(t.{0}, s.{0})",
}
_MERGED = "oncegate_merged"
_ONCE = "spark.databricks.delta.write"
"""Begins the settings by which Delta executes a statement once."""


def append_to_delta(rows: DataFrame, path: str, key: str) -> None:
    """Append the rows to a Delta table, which is created if absent; a second call under the same key changes nothing.

    By Delta's own transaction ids: each table of events has one, whose numbers grow from key to key.
    """
    table, _, number = key.rpartition(_COMMIT_NUMBER)
    writer = rows.write.format("delta").mode("append")
    writer.option("txnAppId", f"oncegate-effects-{table}").option("txnVersion", number).save(path)


def merge_into_delta(rows: DataFrame, path: str, key: str, by: Sequence[str], **combined: str) -> None:
    """Merge rows into a Delta table that has one for each value of the columns `by`, and is created if absent.

    A second call under the same key changes nothing, by Delta's own transaction ids. `combined` says of each other
    column whether two values become their `sum`, `min` or `max`. There must be one row for each value of `by`.
    """
    table, _, number = key.rpartition(_COMMIT_NUMBER)
    on = " AND ".join(f"t.{name} <=> s.{name}" for name in map(jvm.quoted, by))
    values = ", ".join(f"{jvm.quoted(name)} = {_WAYS[way].format(jvm.quoted(name))}" for name, way in combined.items())
    spark, source = rows.sparkSession, rows.select(*by, *combined)
    source.limit(0).write.format("delta").mode("ignore").save(path)
    source.createOrReplaceTempView(_MERGED)
    once = {f"{_ONCE}.txnAppId": f"oncegate-effects-{table}", f"{_ONCE}.txnVersion": number}
    try:
        for name, value in once.items():
            spark.conf.set(name, value)
        spark.sql(
            f"MERGE INTO delta.{jvm.quoted(path)} t USING {_MERGED} s ON {on} "
            f"WHEN MATCHED THEN UPDATE SET {values} WHEN NOT MATCHED THEN INSERT *"
        )
    finally:
        for name in once:
            spark.conf.unset(name)


def insert_into_postgres(rows: DataFrame, connection: Path, table: str, key: str) -> int:
    """Insert the rows in one transaction, with the key into TABLE_keys; a second call under it changes nothing.

    The table must have the columns of the rows. `connection` is a file as that of `--connection`. Return the number of
    inserted rows. They pass through this process one partition after the other.
    """
    kinds = {field.name: field.dataType for field in rows.schema}
    names, keys = [sql.Identifier(name) for name in kinds], identifier(table, _KEYS)
    text = lines(rows.select(*(without_nul(name, kind) for name, kind in kinds.items())), kinds)
    copy = sql.SQL("COPY {} ({}) FROM STDIN").format(identifier(table), sql.SQL(", ").join(names))
    with connected(read_connection(connection)) as opened, durable_transaction(opened):
        opened.execute(sql.SQL("CREATE TABLE IF NOT EXISTS {} (key text PRIMARY KEY)").format(keys))
        added = opened.execute(sql.SQL("INSERT INTO {} VALUES (%s) ON CONFLICT DO NOTHING").format(keys), (key,))
        if not added.rowcount:
            return 0
        with opened.cursor() as cursor:
            with cursor.copy(copy) as stream:
                for row in text.toLocalIterator():
                    stream.write(row[0])
            return cursor.rowcount


def send_to_topic(rows: DataFrame, bootstrap_servers: str, topic: str, **properties: str) -> None:
    """Send the rows as JSON, with the fingerprint (hex) as the record's key; a second call sends them again.

    So a reader has to leave out what it has under a fingerprint. `properties` are those of Kafka's Java client, with
    underscores for dots. The rows need their column `fingerprint`.
    """
    key = F.lower(F.hex("fingerprint"))
    body = F.to_json(F.struct(key.alias("fingerprint"), *(name for name in rows.columns if name != "fingerprint")))
    writer = rows.select(key.alias("key"), body.alias("value")).write.format("kafka")
    writer = writer.options(**{f"kafka.{name.replace('_', '.')}": value for name, value in properties.items()})
    writer.option("kafka.bootstrap.servers", bootstrap_servers).option("topic", topic).save()
