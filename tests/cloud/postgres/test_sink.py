"""The PostgreSQL sink on a real server, without a stream around it."""

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.rows import dict_row
from pyspark.sql import SparkSession

from cloud.errors import SinkError, StopError
from cloud.postgres.connection import connected, read_connection
from cloud.postgres.sink import PostgresSink
from cloud.postgres.statements import EVENTS
from cloud.stream.records import read_records
from cloud.table.commits import CLAIM_ONLY, Commit, to_json
from cloud.table.devices import Devices
from cloud.table.freshness import Horizon
from cloud.table.sink import Written
from contract.event import Event, Value
from simulators.services.postgres import Postgres
from tests.cloud.gateway import Gateway, Record
from tests.cloud.procedures import statements
from tests.cloud.tables import ACCEPTED, DEVICE, counters, topic
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

RETENTION = 7 * 86_400
ALL_LATE = Horizon(ACCEPTED, ACCEPTED, 60, overlaps=True)
CLAIM = Commit("t", "c", 1, CLAIM_ONLY, "events", "id", {}, {}, {})


class Side:
    def __init__(self, spark: SparkSession, server: Postgres, name: str) -> None:
        self.spark = spark
        self.server = server
        self.name = name
        self.sink = self.open()
        self.sink.claim(CLAIM)
        self.batch = 0

    def open(self) -> PostgresSink:
        name = self.name
        return PostgresSink(self.server.connection, name, f"{name}_q", Devices(self.spark, None), RETENTION)

    def write(self, records: list[Record], *, twice: bool = False) -> Written:
        survivors = read_records(topic(self.spark, records))
        commit = replace(CLAIM, batch=self.batch, ends={0: len(records)})
        self.batch += 1
        return self.sink.write(survivors.unionByName(survivors) if twice else survivors, commit, ALL_LATE)

    def select(self, query: str) -> list[dict[str, object]]:
        with psycopg.connect(self.server.connection, row_factory=dict_row) as connection:
            return connection.execute(query.encode()).fetchall()

    def run(self, *statements: str) -> None:
        with psycopg.connect(self.server.connection) as connection:
            for statement in statements:
                connection.execute(statement.encode())


@pytest.fixture
def side(spark: SparkSession, postgres: Postgres) -> Side:
    return Side(spark, postgres, f"t{uuid4().hex}")


def test_headers_in_quarantine_are_json_and_no_staging_table_stays(side: Side) -> None:
    side.write([Record(b"k", b"v", [("x\x00y", b"\x00")])])
    [bad] = side.select(f"SELECT headers FROM {side.name}_q")
    assert json.loads(str(bad["headers"])) == [{"key": "x\x00y", "value": "AA=="}]
    assert side.select("SELECT 1 FROM pg_class WHERE relname LIKE '%staging%'") == []


@pytest.mark.guarantee(5)
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sets(st.sampled_from(sorted(EVENTS.keys() - {"fingerprint"})), max_size=4), st.booleans())
@pytest.mark.heavy
def test_a_job_goes_on_with_a_table_that_another_release_has_made(
    spark: SparkSession, postgres: Postgres, lacking: set[str], is_changed: bool
) -> None:
    side = Side(spark, postgres, f"t{uuid4().hex}")
    changes = ", ".join(["ADD COLUMN later integer", *(f"DROP COLUMN {name} CASCADE" for name in lacking)])
    side.run(f"ALTER TABLE {side.name} {changes}", f"ALTER TABLE {side.name}_q DROP COLUMN headers")
    if is_changed:
        side.run(f"ALTER TABLE {side.name} ALTER later TYPE text, ALTER fingerprint TYPE text")
        with pytest.raises(StopError, match="column fingerprint has the type text, and this release writes bytea"):
            side.open()
        return
    side.sink = side.open()
    event = Event(DEVICE, id=1, data={"a": 1}, ext={"rssi": -70.10})
    assert side.write(Gateway().records([event], ACCEPTED)).rows == 1
    [row] = side.select(f"SELECT * FROM {side.name}")
    assert row.keys() == EVENTS.keys() | {"later"}
    assert (row["data"], row["ext"], row["device"], row["later"]) == ('{"a":1}', '{"rssi":-70.1}', DEVICE, None)


@pytest.mark.guarantee(5)
def test_a_task_that_ran_twice_changes_nothing(side: Side) -> None:
    records = Gateway().records(counters(1, 2), ACCEPTED)
    assert side.write([*records, Record(b"k", b"v", [])], twice=True) == Written(rows=2, late=2, bad=1, found=0)


def with_text(record: Record, old: bytes, new: bytes) -> Record:
    assert old in record.value
    return replace(record, value=record.value.replace(old, new))


@pytest.mark.guarantee(5)
@pytest.mark.heavy
def test_no_text_of_a_sensor_or_writer_fails_the_queries_of_the_table(side: Side) -> None:
    """One such row would fail each query that casts `data`, the view of readings among them, until it is deleted."""
    nul = Event(
        DEVICE, id=1, time=ACCEPTED, data={"t": 1, "a\x00": "open\x00", "b": "\\u0000\\\x00"}, units={"t": "\x00"}
    )
    plain = Gateway().record(Event(DEVICE, id=2, time=ACCEPTED, data={"a": "X"}, units={"a": "U"}))
    texts = (b'{"a":NaN}', b"{'a':1}", b'{"a":"\\ud800"}', b'{"a":1e200000}', b"5", b"[" * 9000)
    others = [
        with_text(Gateway().record(replace(nul, id=n, data={"a": "X"}, units=None)), b'{"a":"X"}', text)
        for n, text in enumerate(texts, 3)
    ]
    units = with_text(Gateway().record(replace(nul, id=99, data={"a": 1}, units={"a": "U"})), b'"U"', b'"\\ud800"')
    records = [Gateway().record(nul), plain, *others, units]
    assert side.write(records).rows == len(records)
    rows = side.select(f"""SELECT data::jsonb ->> 'b' AS b, units::jsonb ->> 't' AS unit, raw, data FROM {side.name}
                           ORDER BY id::int""")
    assert (rows[0]["b"], rows[0]["unit"], rows[0]["raw"]) == ("\\u0000\\\ufffd", "\ufffd", records[0].value)
    assert (rows[1]["raw"], rows[1]["data"]) == (None, '{"a":"X"}')
    assert {row["raw"] for row in rows if row["data"] is None} == {record.value for record in records[2:]}
    assert len(side.select(f"SELECT e.id, one.* FROM {side.name} e, jsonb_each_text(e.data::jsonb) one")) == 4


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_database_that_has_not_all_characters_is_refused_with_what_to_do(postgres: Postgres, encoding: str) -> None:
    with psycopg.connect(postgres.connection, autocommit=True) as connection:
        name = f"d{uuid4().hex}"
        connection.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0".encode())
    other = postgres.connection.replace("dbname=postgres", f"dbname={name}")
    with pytest.raises(StopError, match=f"{name}: its encoding is {encoding}.*ENCODING 'UTF8'"), connected(other):
        pass


@pytest.mark.heavy
def test_commits_wait_for_the_disk_in_their_own_transaction(side: Side) -> None:
    """A pooler may pass each transaction to another connection of the server, whose default is another."""
    waits = "current_setting('synchronous_commit')"
    side.run(
        f"ALTER TABLE {side.name} ADD COLUMN waits text DEFAULT {waits}",
        f"ALTER TABLE {side.name}_owner ADD COLUMN waits text",
        f"""CREATE FUNCTION {side.name}_f() RETURNS trigger LANGUAGE plpgsql AS
            $$BEGIN NEW.waits = {waits}; RETURN NEW; END$$""",
        f"CREATE TRIGGER t BEFORE UPDATE ON {side.name}_owner FOR EACH ROW EXECUTE FUNCTION {side.name}_f()",
    )
    side.sink._connection = f"{side.server.connection} options='-c synchronous_commit=off'"
    side.write(Gateway().records(counters(1), ACCEPTED))
    assert side.select(f"SELECT waits FROM {side.name}") == [{"waits": "on"}]
    side.sink.claim(replace(CLAIM, claim=2))
    assert side.select(f"SELECT waits FROM {side.name}_owner") == [{"waits": "on"}]
    with connected(side.sink._connection) as connection:  # the session's own setting is that of the server
        assert connection.execute("SHOW synchronous_commit").fetchone() == ("off",)


def leave_staging(side: Side) -> list[str]:
    """Create a staging table of a job that was killed, and two tables of others; return the names of these."""
    left, *others = (f"{side.name}_staging_{end}" for end in ("0123456789ab", "aggregations", "ba9876543210"))
    for kind, name in zip(("UNLOGGED", "UNLOGGED", ""), (left, *others), strict=True):
        side.run(f"CREATE {kind} TABLE {name} (a int)")
    return others


def staging(side: Side) -> list[object]:
    there = side.select(f"SELECT relname FROM pg_class WHERE relname LIKE '{side.name}%staging%' ORDER BY relname")
    return [row["relname"] for row in there]


def test_a_claim_drops_what_earlier_jobs_have_left_and_no_table_of_others(side: Side) -> None:
    others = leave_staging(side)
    side.open().claim(replace(CLAIM, claim=2))
    assert staging(side) == others


@pytest.mark.heavy
def test_the_first_batch_under_the_same_claim_drops_what_a_killed_job_has_left(side: Side) -> None:
    older, side.sink = side.open(), side.open()
    others = leave_staging(side)
    side.write(Gateway().records(counters(1)))
    assert staging(side) == others

    younger = f"{side.name}_staging_00112233aabb"
    side.run(f"CREATE UNLOGGED TABLE {younger} (a int)")
    side.sink = older
    with pytest.raises(StopError, match="another job has claimed it"):
        side.write(Gateway().records(counters(2)))
    assert younger in staging(side)


def lose(side: Side, commit: Commit | None) -> None:
    """Set the table back to a commit, as the failover to a standby does that has received no later one."""
    side.run(f"DELETE FROM {side.name}", f"DELETE FROM {side.name}_owner")
    if commit is not None:
        side.run(f"INSERT INTO {side.name}_owner VALUES ('{side.sink.id}', {commit.version}, '{to_json(commit)}')")


@pytest.mark.guarantee(5)
@pytest.mark.heavy
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT, signal.SIGKILL], ids=["fast", "immediate", "killed"])
def test_a_server_that_ends_while_executors_copy_has_nothing_of_the_batch(side: Side, how: signal.Signals) -> None:
    records = Gateway().records(counters(*range(20_000)), ACCEPTED)
    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(side.write, records)
        wait_until(lambda: bool(side.select("SELECT FROM pg_stat_progress_copy")), "an executor copies")
        os.kill(side.server.process.pid, how)
        error = written.exception()
    side.server.process.wait(60)
    side.server.start()
    assert (type(error), str(error).count("\n")) == (SinkError, 0), error
    assert "PostgreSQL: " in str(error)
    assert side.select(f"SELECT FROM {side.name}") == []
    side.batch -= 1
    assert side.write(records).rows == len(records)


@pytest.mark.guarantee(5)
@pytest.mark.heavy
def test_a_job_whose_commit_a_failover_has_lost_commits_nothing_after_it(side: Side) -> None:
    before = side.sink.last_commit()
    one, other = Gateway().records(counters(1, 2), ACCEPTED)
    side.write([one])
    side.sink.check()
    lose(side, before)
    for act in (side.sink.check, lambda: side.write([other])):
        with pytest.raises(StopError, match="it has lost commits"):
            act()
    assert side.select(f"SELECT * FROM {side.name}") == []
    assert side.sink.last_commit() == before


@pytest.mark.guarantee(5)
@pytest.mark.parametrize("has_row", [True, False])
@pytest.mark.heavy
def test_a_claim_after_a_failover_takes_no_offsets_that_the_table_has_lost(side: Side, has_row: bool) -> None:
    before = side.sink.last_commit()
    side.write(Gateway().records(counters(1), ACCEPTED))
    younger = side.open()
    last = younger.last_commit()
    assert last is not None
    lose(side, before if has_row else None)
    with pytest.raises(StopError, match="it has lost commits"):
        younger.claim(replace(last, claim=2, batch=CLAIM_ONLY))
    assert side.sink.last_commit() == (before if has_row else None)


texts = st.text(min_size=1, max_size=12) | st.sampled_from(
    ["\\N", "\\.", "a\tb", "a\nb", "\\", "\r\n", "\x00", "a\x00", "\\\x00\x00", "\\u0000", '"']
)


@pytest.mark.heavy
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(texts, texts, texts), min_size=40, max_size=40))
def test_every_text_arrives_as_it_is(side: Side, told: list[tuple[str, str, str]]) -> None:
    events = [
        Event(f"{place}{device}", id=id_, time=ACCEPTED, data={"t": text})
        for place, (device, id_, text) in enumerate(told)
    ]
    side.run(f"TRUNCATE {side.name}")
    records = Gateway().records(events)
    assert side.write(records).rows == len(events)
    rows = side.select(f"SELECT device, id, data, data::jsonb AS parsed, raw FROM {side.name} ORDER BY sequence")
    for event, record, row in zip(events, records, rows, strict=True):
        assert (row["device"], row["id"]) == (event.device.replace("\x00", "�"), str(event.id).replace("\x00", "�"))
        text = str((event.data or {})["t"])
        assert json.loads(str(row["data"])) == row["parsed"] == {"t": text.replace("\x00", "�")}
        has_nul = "\x00" in f"{event.device}{event.id}" or r"\u0000" in json.dumps(text)
        assert row["raw"] == (record.value if has_nul else None)


@pytest.mark.guarantee(5)
@pytest.mark.heavy
def test_columns_numbers_and_aggregates_that_postgresql_derives_have_each_event_once(side: Side) -> None:
    """Also of values of all types, and of a batch that was rolled back and is written again."""
    for title in ("Derived columns and tables", "Read each new row once"):
        for shown in statements(title, "PostgreSQL"):
            side.run(shown.replace("temperature_hours", f"{side.name}_hours").replace("events", side.name))
    values: list[Value] = [20.5, 21, "warm", None, "\x00", True, 1e300, -1, {"a": 1}]
    events = [Event(DEVICE, id=number, data={"temperature": value}) for number, value in enumerate(values)]
    records = Gateway().records([*events, Event(DEVICE, id=99, data={})], ACCEPTED)
    side.write(records[:5])
    assert len(side.select(f"SELECT 1 FROM {side.name} WHERE number <= 5")) == 5
    side.run(f"ALTER TABLE {side.name}_hours RENAME TO {side.name}_away")
    with pytest.raises(SinkError, match="does not exist"):
        side.write(records)
    side.run(f"ALTER TABLE {side.name}_away RENAME TO {side.name}_hours")
    side.batch -= 1
    assert side.write(records).found == 5
    rows = side.select(f"SELECT temperature, number > 5 AS is_new FROM {side.name} ORDER BY sequence")
    assert [row["temperature"] for row in rows] == [20.5, 21, None, None, None, None, 10**300, -1, None, None]
    assert [row["is_new"] for row in rows] == [False] * 5 + [True] * 5
    [hour] = side.select(f"SELECT device, readings, total FROM {side.name}_hours")
    assert hour == {"device": DEVICE, "readings": 4, "total": Decimal(f"{10**300 + 40}.5")}


@pytest.mark.parametrize("comment", ["", "theirs", "oncegate:events", "oncegate:{}: of the plant", "of the plant: {}"])
def test_a_table_with_a_comment_of_somebody_else_is_left_alone(side: Side, comment: str) -> None:
    """What is behind the id would otherwise be a part of it: a table without offsets, read anew, with no receipt."""
    side.run(f"COMMENT ON TABLE {side.name} IS '{comment.format(side.sink.id)}'")
    with pytest.raises(StopError, match=f"not of this job.*the id is in {side.name}_owner"):
        side.open()


def test_a_table_made_anew_has_another_id_and_no_offsets(side: Side) -> None:
    for drop in (f"DROP TABLE {side.name}", f"ALTER TABLE {side.name} RENAME TO {side.name}_archive"):
        before = side.open().id
        side.run(drop)
        anew = side.open()
        assert anew.id != before
        assert anew.last_commit() is None


@pytest.mark.guarantee(5)
@pytest.mark.parametrize("by_a_job", [True, False])
@pytest.mark.heavy
def test_a_table_that_is_recreated_while_the_job_runs_gets_nothing(side: Side, by_a_job: bool) -> None:
    one, other = Gateway().records(counters(1, 2), ACCEPTED)
    side.write([one])
    before = side.sink.last_commit()
    side.run(f"CREATE TABLE {side.name}_anew (LIKE {side.name} INCLUDING ALL)", f"DROP TABLE {side.name}")
    if by_a_job:
        side.open()
    else:
        side.run(f"ALTER TABLE {side.name}_anew RENAME TO {side.name}")
    for act in (side.sink.check, lambda: side.write([other])):
        with pytest.raises(StopError, match=f"recreated while the job ran.*--succeeds {side.sink.id}"):
            act()
    assert side.select(f"SELECT * FROM {side.name}") == []
    assert side.sink.last_commit() == before


@pytest.mark.guarantee(5)
@pytest.mark.heavy
def test_maintenance_while_the_job_runs_stops_nothing(side: Side) -> None:
    one, other = Gateway().records(counters(1, 2), ACCEPTED)
    side.write([one])
    with psycopg.connect(side.server.connection, autocommit=True) as connection:
        for statement in ("VACUUM FULL", "REINDEX TABLE", "ANALYZE"):
            connection.execute(f"{statement} {side.name}".encode())
        connection.execute(f"ALTER TABLE {side.name} ADD COLUMN extra text".encode())
    assert side.write([other]).rows == 1


def test_the_connection_comes_from_a_file_that_others_cannot_read(postgres: Postgres, tmp_path: Path) -> None:
    file = postgres.write_connection(tmp_path / "connection")
    with connected(read_connection(file)) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    file.chmod(0o644)
    with pytest.raises(StopError, match="chmod 600"):
        read_connection(file)
    with pytest.raises(StopError, match="No such file"):
        read_connection(tmp_path / "none")
    file.chmod(0o600)
    file.write_text("nonsense")
    with pytest.raises(StopError, match="connection file"):
        read_connection(file)


def test_a_server_that_is_not_there_is_an_error_that_says_so() -> None:
    with pytest.raises(SinkError, match="PostgreSQL: connection"), connected("host=127.0.0.1 port=1"):
        pass
