"""What the job says to PostgreSQL, each statement with its purpose."""

from __future__ import annotations

from psycopg import sql

from cloud.postgres.connection import identifier
from cloud.postgres.copy_format import STAGED
from cloud.table import rows
from cloud.table.id_reuse import ID_REUSED
from contract.record import ClockTrust

_TYPES = {
    "binary": "bytea",
    "string": "text",
    "timestamp": "timestamptz",
    "bigint": "bigint",
    "int": "integer",
    "date": "date",
}
"""Text, not json, for `data` and `units`: what JSON parsers take differs, and no event may be refused here."""

_QUARANTINE = {
    "topic_id": "text NOT NULL",
    "topic": "text",
    "kafka_partition": "integer NOT NULL",
    "kafka_offset": "bigint NOT NULL",
    "reason": "text NOT NULL",
    "kafka_key": "bytea",
    "value": "bytea",
    "headers": "text",
    "appended": "timestamptz",
    "quarantined_at": "timestamptz",
    "digest": "bytea NOT NULL",
}


def _accepted(row: str) -> str:
    """Return when a row's event was accepted, as `reuse.accepted` does."""
    good = f"CASE {row}.clock WHEN '{ClockTrust.TRUSTED}' THEN {row}.received END"
    return f"coalesce(least({good}, {row}.appended), {row}.received)"


class Statements:
    """The statements about one table, its quarantine, and the row that says whose it is."""

    def __init__(self, table: str, quarantine: str) -> None:
        self._names = {
            "table": identifier(table),
            "quarantine": identifier(quarantine),
            "owner": identifier(table, "_owner"),
            "received": sql.Identifier(f"{table.rsplit('.', maxsplit=1)[-1]}_received"),
            "columns": sql.SQL(", ").join(map(sql.Identifier, rows.COLUMNS)),
        }
        self._table = table

    # One row for each life of the table, which bears its id as its comment: dropped and made anew it has another one.
    CREATE_OWNER = (
        "CREATE TABLE IF NOT EXISTS {owner} (id text PRIMARY KEY, version bigint NOT NULL, said text NOT NULL)"
    )
    # BRIN: a few pages, since rows come about in the order of their acceptance.
    CREATE_RECEIVED = "CREATE INDEX IF NOT EXISTS {received} ON {table} USING brin (received)"
    READ_ID = "SELECT obj_description(to_regclass(%s), 'pg_class')"
    LAST = "SELECT said FROM {owner} WHERE id = %s"
    CLAIM = """
        INSERT INTO {owner} AS was (id, version, said) VALUES (%(id)s, %(version)s, %(said)s)
        ON CONFLICT (id) DO UPDATE SET version = excluded.version, said = excluded.said
        WHERE was.version < excluded.version
    """
    # Of this claim and an earlier batch, or nothing: another job has taken over.
    ADVANCE = """
        UPDATE {owner} SET version = %(version)s, said = %(said)s
        WHERE id = %(id)s AND version < %(version)s AND version >> %(bits)s = %(claim)s
    """
    # Where staging holds an event twice (a task that ran twice, an id that was used twice), the first accepted wins.
    INSERT = f"""
        INSERT INTO {{table}} ({{columns}})
        SELECT DISTINCT ON (fingerprint) {{columns}} FROM {{staging}} s WHERE reason IS NULL
        ORDER BY fingerprint, {_accepted("s")}, epoch, sequence
        ON CONFLICT (fingerprint) DO NOTHING
    """
    COUNT = """
        SELECT count(*),
               count(DISTINCT fingerprint) FILTER (WHERE reason IS NULL),
               count(DISTINCT fingerprint) FILTER (WHERE reason IS NULL AND fresh = 'false'),
               count(DISTINCT (kafka_partition, kafka_offset)) FILTER (WHERE reason IS NOT NULL)
        FROM {staging}
    """
    _INTO_QUARANTINE = """
        INSERT INTO {quarantine} (topic_id, topic, kafka_partition, kafka_offset, reason, kafka_key, value, headers,
                                  appended, quarantined_at, digest)
        SELECT %(topic_id)s, %(topic)s, s.kafka_partition, s.kafka_offset,
    """
    # Where the log was cut and has grown again, another record has the place of one that is there already.
    _DIGEST = "sha256(convert_to(json_build_array(s.kafka_key, s.value, s.headers)::text, 'UTF8'))"
    QUARANTINE_BAD = f"""
        {_INTO_QUARANTINE} s.reason, s.kafka_key, s.value, s.headers, s.appended, s.processed_at, {_DIGEST}
        FROM {{staging}} s WHERE s.reason IS NOT NULL
        ON CONFLICT DO NOTHING
    """
    # After INSERT: the table has the first, so the others of the batch are held against it, too.
    QUARANTINE_REUSED = f"""
        {_INTO_QUARANTINE} '{ID_REUSED}', s.kafka_key, s.value, s.headers, s.appended, s.processed_at, {_DIGEST}
        FROM {{staging}} s JOIN {{table}} t USING (fingerprint)
        WHERE s.reason IS NULL AND s.shared = 'none' AND (s.epoch, s.sequence) <> (t.epoch, t.sequence)
          AND abs(extract(epoch FROM {_accepted("s")} - {_accepted("t")})) > %(retention)s
        ON CONFLICT DO NOTHING
    """
    DROP_STAGING = "DROP TABLE {staging}"
    LEFT_STAGING = """
        SELECT oid::regclass::text FROM pg_class WHERE relname LIKE %(pattern)s AND relkind = 'r'
        AND relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass(%(table)s))
    """

    def __call__(self, text: str, staging: str = "") -> sql.Composed:
        """Put the names in."""
        return sql.SQL(text).format(**self._names, staging=identifier(self._table, staging))

    @property
    def create_table(self) -> sql.Composed:
        """Make the table: a plain one, since a key that is unique over all days cannot be partitioned by day."""
        columns = ", ".join(f"{name} {_TYPES[kind.simpleString()]}" for name, kind in rows.COLUMNS.items())
        return self("CREATE TABLE {table} (" + columns + ", PRIMARY KEY (fingerprint))")

    @property
    def add_columns(self) -> sql.Composed:
        """Add to a table that was made by an older job what it lacks."""
        added = ", ".join(f"ADD COLUMN IF NOT EXISTS {n} {_TYPES[k.simpleString()]}" for n, k in rows.COLUMNS.items())
        return self("ALTER TABLE {table} " + added)

    @property
    def create_quarantine(self) -> sql.Composed:
        """Make the quarantine: each record of each topic once, by place and content."""
        columns = ", ".join(f"{name} {kind}" for name, kind in _QUARANTINE.items())
        key = "PRIMARY KEY (topic_id, kafka_partition, kafka_offset, digest)"
        return self("CREATE TABLE IF NOT EXISTS {quarantine} (" + columns + f", {key})")

    def create_staging(self, staging: str) -> sql.Composed:
        """Make the table into which the executors copy one batch; it need not survive a crash."""
        columns = ", ".join(f"{name} {_TYPES[kind.simpleString()]}" for name, kind in STAGED.items())
        return self("CREATE UNLOGGED TABLE {staging} (" + columns + ")", staging)

    def copy(self, staging: str) -> sql.Composed:
        """Read lines into it."""
        return self("COPY {staging} FROM STDIN", staging)
