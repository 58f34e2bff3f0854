"""The job's statements for PostgreSQL, each with its purpose."""

from collections.abc import Sequence

from psycopg import sql

from cloud.postgres.connection import identifier
from cloud.table import layout
from cloud.table.layout import COLUMNS, STAGED, Reason
from contract.fields import OBJECTS
from contract.record import ClockTrust

_TYPES = {
    "binary": "bytea",
    "string": "text",
    "timestamp": "timestamp with time zone",
    "bigint": "bigint",
    "int": "integer",
    "date": "date",
    "boolean": "boolean",
    "smallint": "smallint",
    "tinyint": "smallint",
    "float": "real",
    "double": "double precision",
    "timestamp_ntz": "timestamp without time zone",
}
"""Objects are text, not json, since the gateway's digest is of the text."""
EVENTS = {name: _TYPES[kind] for name, kind in COLUMNS.items()}
"""The columns of the table, and their types."""

QUARANTINE = {**{name: _TYPES[kind] for name, kind in layout.QUARANTINE.items()}, "digest": "bytea"}

STAGING = {name: _TYPES[kind] for name, kind in STAGED.items()}
"""The columns of a staging table, and their types."""
_STAGED = ", ".join(f"{name} {kind}" for name, kind in STAGING.items())
OWN = "own_"
"""Begins the names of a transform's columns in a staging table, numbered from 0: its own may be among STAGING."""

_NO_OBJECT = " OR ".join(f"jsonb_typeof({name}::jsonb) <> 'object'" for name in OBJECTS)
_ONE_NO_OBJECT = " OR ".join(f"jsonb_typeof(one.{name}::jsonb) <> 'object'" for name in OBJECTS)


def _accepted(row: str) -> str:
    """Return an expression for the time of acceptance of a row's event, equal to `id_reuse.accepted`."""
    good = f"CASE {row}.clock WHEN '{ClockTrust.TRUSTED}' THEN {row}.received END"
    return f"coalesce(least({good}, {row}.appended), {row}.received)"


def kind_of(type_: str) -> str | None:
    """Return the type of Spark for one of PostgreSQL; None where there is none."""
    if type_.startswith("numeric("):
        return type_.replace("numeric", "decimal")
    return next((kind for kind, found in _TYPES.items() if found == type_), None)


def type_of(kind: str) -> str | None:
    """Return the type of PostgreSQL for one of Spark; None where there is none."""
    return _TYPES.get(kind, kind.replace("decimal", "numeric") if kind.startswith("decimal(") else None)


class Statements:
    """The statements about a table, its quarantine, and the table of its owner."""

    def __init__(self, table: str, quarantine: str) -> None:
        self._names = {
            "table": identifier(table),
            "quarantine": identifier(quarantine),
            "owner": identifier(table, "_owner"),
            "new": identifier(table, "_new"),
        }
        self._table = table

    # One row per table id. The id is the table's comment, so that a recreated table has another one.
    CREATE_OWNER = (
        "CREATE TABLE IF NOT EXISTS {owner} (id text PRIMARY KEY, version bigint NOT NULL, metadata text NOT NULL)"
    )
    # BRIN takes a few pages, since rows arrive roughly in the order of their acceptance.
    CREATE_RECEIVED = "CREATE INDEX ON {table} USING brin (received)"
    # The views of the fleet read the gateways' own events alone, one of thousands.
    CREATE_OWN = "CREATE INDEX ON {table} (gateway, appended) WHERE via = 'gateway'"
    READ_ID = "SELECT obj_description(to_regclass(%s), 'pg_class')"
    LAST = "SELECT metadata FROM {owner} WHERE id = %s"
    FIRST_CLAIM = "INSERT INTO {owner} VALUES (%(id)s, %(version)s, %(metadata)s) ON CONFLICT DO NOTHING"
    # Not below the known version: a server that has lost commits (a failover) does not have the rows up to the offsets.
    CLAIM = """
        UPDATE {owner} SET version = %(version)s, metadata = %(metadata)s
        WHERE id = %(id)s AND version BETWEEN %(known)s AND %(version)s - 1
    """
    # Only from the commit that the job has made or read: otherwise another job has taken over, or commits were lost.
    ADVANCE = (
        "UPDATE {owner} SET version = %(version)s, metadata = %(metadata)s WHERE id = %(id)s AND version = %(known)s"
    )
    TRY_KEY = "EXPLAIN INSERT INTO {table} (fingerprint) VALUES (NULL) ON CONFLICT (fingerprint) DO NOTHING"
    # Of equal fingerprints in staging (a repeated task, a reused id) the first accepted one is inserted.
    INSERT = f"""
        INSERT INTO {{table}} ({{into}})
        SELECT DISTINCT ON (fingerprint) {{staged}} FROM {{staging}} s WHERE reason IS NULL
        ORDER BY fingerprint, {_accepted("s")}, epoch, sequence
        ON CONFLICT (fingerprint) DO NOTHING
    """
    # The rows that the latest batch has inserted, for the user's effects: written in its transaction.
    CREATE_NEW = """
        CREATE TABLE IF NOT EXISTS {new}
        (fingerprint bytea PRIMARY KEY, version bigint NOT NULL, number bigint NOT NULL)
    """
    FORGET_NEW = "TRUNCATE {new}"
    # A row that was deleted from the table before its effects are done may come again.
    INSERT_AND_KEEP = f"""
        WITH added AS ({INSERT} RETURNING fingerprint)
        INSERT INTO {{new}} SELECT fingerprint, %(version)s, row_number() OVER () FROM added
        ON CONFLICT (fingerprint) DO UPDATE SET version = excluded.version, number = excluded.number
    """
    NEW = "SELECT max(version), count(*) FROM {new}"
    READ_NEW = """
        SELECT {into} FROM {table}
        WHERE fingerprint IN (SELECT n.fingerprint FROM {new} n WHERE n.number %% %(parts)s = %(part)s)
    """
    COUNT = """
        SELECT count(DISTINCT (kafka_partition, kafka_offset)) FILTER (WHERE reason IS NULL),
               count(DISTINCT (kafka_partition, kafka_offset)) FILTER (WHERE reason IS NULL AND fresh = 'false'),
               count(DISTINCT (kafka_partition, kafka_offset)) FILTER (WHERE reason IS NOT NULL)
        FROM {staging}
    """
    # What Spark has read need not be JSON for this server, and one row would fail each query that casts its data.
    SET_ASIDE_DATA = f"""
        DO $$
        DECLARE one record;
        BEGIN
            IF EXISTS (SELECT FROM {{staging}} WHERE reason IS NULL AND ({_NO_OBJECT})) THEN
                RAISE data_exception;
            END IF;
        EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
            FOR one IN SELECT ctid, {", ".join(OBJECTS)} FROM {{staging}} WHERE reason IS NULL LOOP
                BEGIN
                    IF {_ONE_NO_OBJECT} THEN
                        RAISE data_exception;
                    END IF;
                EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
                    UPDATE {{staging}} SET raw = value, {" = NULL, ".join(OBJECTS)} = NULL WHERE ctid = one.ctid;
                END;
            END LOOP;
        END $$
    """
    _INTO_QUARANTINE = """
        INSERT INTO {quarantine} (topic_id, topic, kafka_partition, kafka_offset, reason, kafka_key, value, headers,
                                  appended, quarantined_at, digest)
        SELECT %(topic_id)s, %(topic)s, s.kafka_partition, s.kafka_offset,
    """
    # After a truncation of the log another record may have the place of one in quarantine.
    _DIGEST = "sha256(convert_to(json_build_array(s.kafka_key, s.value, s.headers)::text, 'UTF8'))"
    _IS_REUSED = (
        "s.shared = 'none' AND (s.epoch, s.sequence) <> (t.epoch, t.sequence) "
        f"AND abs(extract(epoch FROM {_accepted('s')} - {_accepted('t')})) > %(retention)s"
    )
    # A rejected row that the table has already is a duplicate.
    QUARANTINE_BAD = f"""
        {_INTO_QUARANTINE} s.reason, s.kafka_key, s.value, s.headers, s.appended, s.processed_at, {_DIGEST}
        FROM {{staging}} s LEFT JOIN {{table}} t USING (fingerprint)
        WHERE s.reason IS NOT NULL AND (t.fingerprint IS NULL OR {_IS_REUSED})
        ON CONFLICT DO NOTHING
    """
    # After INSERT the table has the first one, so that others of the same batch are compared with it, too.
    QUARANTINE_REUSED = f"""
        {_INTO_QUARANTINE} '{Reason.ID_REUSED}', s.kafka_key, s.value, s.headers, s.appended, s.processed_at, {_DIGEST}
        FROM {{staging}} s JOIN {{table}} t USING (fingerprint)
        WHERE s.reason IS NULL AND {_IS_REUSED}
        ON CONFLICT DO NOTHING
    """
    DROP_STAGING = "DROP TABLE {staging}"
    # Only what a job has made, since others may name tables similarly.
    LEFT_STAGING = """
        SELECT oid::regclass::text FROM pg_class
        WHERE relname ~ %(pattern)s AND relkind = 'r' AND relpersistence = 'u' AND pg_has_role(relowner, 'USAGE')
        AND relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass(%(table)s))
    """

    def __call__(
        self, text: str, staging: str | sql.Identifier = "", own: Sequence[tuple[str, str]] = ()
    ) -> sql.Composed:
        """Return a statement with the names filled in; `own` are a transform's columns, with their staged names."""
        percent = "%%" if "%(" in text else "%"  # of a statement with parameters
        into, staged = (
            sql.SQL(", ").join(sql.Identifier(name.replace("%", percent)) for name in (*COLUMNS, *names))
            for names in ([name for name, _ in own], [name for _, name in own])
        )
        of = identifier(self._table, staging) if isinstance(staging, str) else staging
        return sql.SQL(text).format(**self._names, into=into, staged=staged, staging=of)

    @property
    def create_table(self) -> sql.Composed:
        """Return the statement that creates the table, unpartitioned, since the key is unique over all days."""
        columns = ", ".join(f"{name} {kind}" for name, kind in EVENTS.items())
        return self("CREATE TABLE {table} (" + columns + ", PRIMARY KEY (fingerprint))")

    @property
    def create_quarantine(self) -> sql.Composed:
        """Return the statement that creates the quarantine; its key is a record's topic, place and content."""
        columns = ", ".join(f"{name} {kind}" for name, kind in QUARANTINE.items())
        key = "PRIMARY KEY (topic_id, kafka_partition, kafka_offset, digest)"
        return self("CREATE TABLE IF NOT EXISTS {quarantine} (" + columns + f", {key})")

    def create_staging(self, staging: str | sql.Identifier, own: Sequence[str], kind: str = "UNLOGGED") -> sql.Composed:
        """Return the statement that creates the staging table of one batch, which need not survive a crash.

        `own` are the types of a transform's columns.
        """
        columns = ", ".join([_STAGED, *(f"{OWN}{number} {type_}" for number, type_ in enumerate(own))])
        return self(f"CREATE {kind} TABLE {{staging}} (" + columns + ")", staging)
