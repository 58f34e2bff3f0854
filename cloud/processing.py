"""What `--effects` may use (docs/processing.md): each writes rows, and says what a second call under one key does."""

from __future__ import annotations

from pathlib import Path

from psycopg import sql
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cloud.postgres.connection import connected, durable_transaction, identifier, read_connection
from cloud.postgres.copy_format import lines, without_nul

_KEYS = "_keys"
_COMMIT_NUMBER = "-"


def append_to_delta(rows: DataFrame, path: str, key: str) -> None:
    """Append the rows to a Delta table, which is created if absent; a second call under the same key changes nothing.

    By Delta's own transaction ids: each table of events has one, whose numbers grow from key to key.
    """
    table, _, number = key.rpartition(_COMMIT_NUMBER)
    writer = rows.write.format("delta").mode("append")
    writer.option("txnAppId", f"oncegate-effects-{table}").option("txnVersion", number).save(path)


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
    for name, value in properties.items():
        writer = writer.option(f"kafka.{name.replace('_', '.')}", value)
    writer.option("kafka.bootstrap.servers", bootstrap_servers).option("topic", topic).save()
