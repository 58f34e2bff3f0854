"""The user's own processing, by the examples of docs/processing.md, on both sinks."""

import argparse
import json
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from cloud import hooks, processing
from cloud.delta.log_cleaning import LogCleaner
from cloud.errors import HookError, StopError
from cloud.postgres.copy_format import lines
from cloud.runtime.repeated import Repeated
from cloud.stream.progress import Observer
from cloud.table.commits import BATCH_BITS
from cloud.table.freshness import Horizon
from cloud.table.rows import COLUMNS
from cloud.table.transform import Transform
from contract.event import Event
from simulators.services.kafka.broker import Broker
from simulators.services.postgres import Postgres
from tests.cloud.gateway import Gateway, Record, now, readings
from tests.cloud.running import DELTA, POSTGRES, CloudSide
from tests.cloud.tables import ACCEPTED, COMMIT, DAY, DEVICE, SinkSide
from tests.docs.pages import ROOT, blocks

pytestmark = pytest.mark.spark

EXAMPLES = "\n".join(blocks(ROOT / "docs" / "processing.md", "python"))
METERS = f"device,customer,tariff\n{DEVICE},Ada,night\n"
RETENTION = 7 * 86_400


@pytest.fixture
def plant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the folder in which a job would be started, with the examples as a module."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plant.py").write_text(EXAMPLES.replace("/etc/oncegate", str(tmp_path)))
    (tmp_path / "meters.csv").write_text(METERS)
    path = list(sys.path)
    yield tmp_path
    sys.path[:] = path
    sys.modules.pop("plant", None)


@pytest.fixture
def side(sink_side: SinkSide, plant: Path) -> SinkSide:
    """Return the tables of one sink, in the folder of the examples."""
    sink_side.folder = plant
    return sink_side


def temperatures(*values: object) -> list[Record]:
    events = [Event(DEVICE, id=number, data={"temperature": value}) for number, value in enumerate(values)]  # type: ignore[dict-item]
    return Gateway().records(events, ACCEPTED)


@pytest.mark.heavy
@pytest.mark.guarantee(5)
def test_the_pages_transform_adds_columns_and_rejects_what_is_implausible(side: SinkSide) -> None:
    examples = hooks.find("plant:transform").load()

    def transform(rows: DataFrame) -> DataFrame:
        assert rows.filter("fingerprint IS NULL").isEmpty()  # what is not well-formed is no row
        made: DataFrame = examples(rows)
        return made

    records = [*temperatures(21.5, "warm", 900), Record(b"k", b"v", [])]
    written = side.write(records, transform)
    assert (written.rows, written.bad, written.rejected, written.found) == (2, 1, 1, 0)
    assert side.write(records[:3], transform).rows == 0  # a batch again
    assert side.write(temperatures(1, 1, 1, 5)[3:]).rows == 1  # a job without the transform
    found = side.table()
    rows = sorted(found.rows(), key=lambda row: int(row["id"]))
    assert [(row["id"], row["temperature"], row["customer"], row["tariff"]) for row in rows] == [
        ("0", 21.5, "Ada", "night"),
        ("1", None, "Ada", "night"),
        ("3", None, None, None),
    ]
    assert rows[0].keys() == {*COLUMNS, "temperature", "customer", "tariff"}
    quarantined = {(row["reason"], bytes(row["value"])) for row in found.quarantined()}
    assert quarantined == {("headers", b"v"), ("rejected: temperature out of range", records[2].value)}


def doubled(rows: DataFrame) -> DataFrame:
    return rows.unionByName(rows.filter("id = '1'"))


def swapped(rows: DataFrame) -> DataFrame:
    return rows.filter("id <> '0'").unionByName(rows.filter("id = '1'"))


def invented(rows: DataFrame) -> DataFrame:
    return rows.unionByName(rows.filter("id = '1'").withColumn("kafka_offset", F.lit(99).cast("bigint")))


WRONG: list[tuple[Callable[[DataFrame], Any], str]] = [
    (lambda rows: rows.filter("id <> '1'"), "of 3 rows it has 1 lost"),
    (doubled, "of 3 rows it has 1 doubled"),
    (swapped, "of 3 rows it has 1 lost, 1 doubled"),
    (invented, "of 3 rows it has 1 invented"),
    (lambda rows: rows.withColumn("data", F.lit("{}")), "of 3 rows it has 3 changed"),
    (lambda rows: rows.withColumn("site", F.col("units")).withColumn("units", F.lit("x")), "3 changed"),
    (lambda rows: rows.drop("units"), "it does not return the column units"),
    (lambda rows: rows.withColumn("units", F.lit(1)), "its column units has the type int, and the job's has string"),
    (lambda rows: rows.withColumn("x", F.lit(None)), "its column x has no type"),
    (lambda rows: rows.select("*", F.lit(1).alias("DATA")), "two columns with the name data"),
    (lambda rows: rows.withColumn("reject", F.lit(1)), "its column reject has the type int"),
    (lambda rows: rows.withColumn("Reject", F.lit("odd")), "its column Reject rejects nothing: write reject"),
    (lambda rows: None, "it returns NoneType, not a DataFrame"),
]


@pytest.mark.heavy
@pytest.mark.guarantee(5)
def test_a_transform_that_does_not_return_the_same_rows_writes_nothing(side: SinkSide) -> None:
    """Each on the same table: no one before has left anything."""
    for transform, told in WRONG:
        with pytest.raises(StopError, match=told):
            side.write(temperatures(1, 2, 3), transform)
    assert (side.table().rows(), side.table().quarantined()) == ([], [])
    assert side.write(temperatures(1, 2, 3), lambda rows: rows).rows == 3


class Counted:
    """A transform, and how often it was called."""

    def __init__(self, function: Callable[[DataFrame], DataFrame]) -> None:
        self.function = function
        self.calls = 0

    def __call__(self, rows: DataFrame) -> DataFrame:
        self.calls += 1
        return self.function(rows)


def tripled(rows: DataFrame) -> DataFrame:
    return rows.withColumn("x", F.get_json_object("data", "$.t").cast("double") * 3)


def looking(rows: DataFrame) -> DataFrame:
    """Read the rows before they are returned."""
    return rows.select("*", F.lit(float(rows.count())).alias("x"))


def by_python(rows: DataFrame) -> DataFrame:
    return rows.withColumn("x", F.udf(float, "double")(F.col("kafka_offset")))


def rejecting(rows: DataFrame) -> DataFrame:
    return tripled(rows).withColumn("reject", F.when(F.col("id") == "1", F.lit("odd")))


def joined(rows: DataFrame) -> DataFrame:
    return rows.join(rows.groupBy("device").agg(F.count("*").cast("double").alias("x")), on="device")


def renamed(rows: DataFrame) -> DataFrame:
    """Return the same under other names and back."""
    return tripled(rows).withColumnRenamed("id", "y").withColumnRenamed("y", "id")


def failing(rows: DataFrame) -> DataFrame:
    return rows.withColumn("x", F.udf(lambda data: data.missing, "double")(F.col("data")))


@pytest.mark.heavy
@pytest.mark.guarantee(5)
def test_a_transform_that_only_adds_columns_is_written_in_one_pass(spark: SparkSession, plant: Path) -> None:
    side = SinkSide(spark, plant, None, "unused")
    side.write([], tripled)  # adds the column
    records = Gateway().records(readings(3), now())
    all_fresh = Horizon(now() + 60_000, now() - DAY, 3600)
    rows, quarantined = 0, 0
    for function, more, calls, outcome in (
        (tripled, [], 1, (3, 0, 0)),
        (looking, [], 1, (3, 0, 0)),
        (by_python, [], 1, (3, 0, 0)),
        (tripled, [Record(b"k", b"v", [])], 2, (3, 1, 0)),
        (renamed, [], 2, (3, 0, 0)),
        (joined, [], 2, (3, 0, 0)),
        (rejecting, [], 2, (2, 0, 1)),
    ):
        transform = Counted(function)
        written = side.write([*records, *more], transform, all_fresh)
        assert ((written.rows, written.bad, written.rejected), transform.calls) == (outcome, calls), function.__name__
        rows, quarantined = rows + written.rows, quarantined + written.bad + written.rejected
        table = side.table()
        assert (len(table.rows()), len(table.quarantined())) == (rows, quarantined)
        assert all(row["x"] is not None for row in table.rows())
    for wrong, told in WRONG:
        with pytest.raises(StopError, match=told):
            side.write(records, wrong, all_fresh)
    with pytest.raises(HookError, match="has no attribute 'missing'"):
        side.write(records, failing, all_fresh)
    assert (len(side.table().rows()), len(side.table().quarantined())) == (rows, quarantined)


@pytest.mark.heavy
@pytest.mark.guarantee(5)
def test_an_error_after_the_commit_in_one_pass_writes_no_row_again(
    spark: SparkSession, plant: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    side = SinkSide(spark, plant, None, "unused")
    side.write([], tripled)
    errors = [PySparkException("the disk is full\n...")]

    def fail_once(cleaner: LogCleaner) -> None:
        if errors:
            raise errors.pop()

    monkeypatch.setattr(LogCleaner, "clean_if_due", fail_once)
    transform = Counted(tripled)
    records, all_fresh = Gateway().records(readings(3), now()), Horizon(now() + 60_000, now() - DAY, 3600)
    assert (side.write(records, transform, all_fresh).rows, transform.calls) == (3, 2)
    assert (len(side.table().rows()), side.table().quarantined()) == (3, [])
    assert "batch=2 stage=write passes=1 error='the disk is full'" in caplog.messages


@pytest.mark.heavy
@pytest.mark.guarantee(5)
def test_a_column_of_another_type_stops_with_both_types_and_the_way_on(side: SinkSide) -> None:
    odd = 'value "of" `x`' if side.postgres else "value`x"
    assert side.write(temperatures(1), lambda rows: rows.withColumn(odd, F.lit("a\tb\\\x00"))).rows == 1
    [row] = side.table().rows() if side.postgres else [{odd: "a\tb\\\ufffd"}]
    assert row[odd] == "a\tb\\\ufffd"
    kinds = ("text", "double precision") if side.postgres else ("string", "double")
    with pytest.raises(StopError) as stopped:
        side.write(temperatures(1, 2), lambda rows: rows.withColumn(odd, F.lit(1.5)))
    for part in (odd, *kinds, "Give the transform's column another name"):
        assert part in str(stopped.value)


@pytest.mark.heavy
def test_columns_of_every_type(side: SinkSide) -> None:
    kinds = ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal(9,3)", "binary", "date")
    kinds += ("timestamp", *(("timestamp_ntz",) if side.postgres else ()))
    of = {f"c{number}": F.lit(None if kind == "binary" else "1").cast("string") for number, kind in enumerate(kinds)}
    values = {name: value.try_cast(kind) for (name, value), kind in zip(of.items(), kinds, strict=True)}
    for _ in range(2):
        side.write(temperatures(1, 2), lambda rows: rows.withColumns(values))
    rows = side.table().rows()
    assert [(row["c0"], row["c4"], float(row["c7"])) for row in rows] == [(True, 1, 1.0)] * 2
    if side.iceberg:  # which takes any
        return
    name, told = (
        ("a", "the transform's column a has the type array<int>") if side.postgres else ("a b", "Delta refuses")
    )
    with pytest.raises(StopError, match=told):
        side.write(temperatures(1), lambda rows: rows.withColumn(name, F.array(F.lit(1))))


FAILING = """
from pyspark.sql import functions as F
def at_once(rows):
    raise ValueError("no table\\nof meters")
def unknown(rows):
    return rows.withColumn("x", F.col("temperatur"))
@F.udf("string")
def named(data):
    return data.missing
def on_an_executor(rows):
    return rows.withColumn("x", named("data"))
def in_spark(rows):
    return rows.withColumn("x", F.col("data").cast("int"))
def effects(rows, key):
    on_an_executor(rows).collect()
"""


def test_an_error_of_the_users_code_is_one_line_with_its_place(spark: SparkSession, plant: Path) -> None:
    (plant / "plant.py").write_text(FAILING)
    side = SinkSide(spark, plant, None, "unused")
    for name, line, told in (
        ("at_once", 4, "ValueError: no table"),
        ("unknown", 6, "AnalysisException: [UNRESOLVED_COLUMN"),
        ("on_an_executor", 9, "AttributeError: 'str' object has no attribute 'missing'"),
        ("in_spark", 13, "[CAST_INVALID_INPUT]"),
    ):
        with pytest.raises(HookError) as failed:
            side.write(temperatures(1), hooks.find(f"plant:{name}").load())
        said = str(failed.value)
        assert said.startswith(f"plant:transform: {plant}/plant.py:{line}: ")
        assert told in said
        assert "\n" not in said
        assert len(said) < 1_000


def test_an_error_of_the_users_effects_is_one_line_with_its_place(
    spark: SparkSession, plant: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (plant / "plant.py").write_text(FAILING)
    rows = spark.createDataFrame([("{}",)], "data string")
    assert Repeated(hooks.find("plant:effects"), 60.0, Observer()).attempt(rows, "t-1") == 1
    [line] = [record.getMessage() for record in caplog.records if record.name == "cloud.runtime.repeated"]
    error = f"plant:effects: {plant}/plant.py:9: AttributeError: 'str' object has no attribute 'missing'"
    assert line == f"key=t-1 stage=effects failures=1 retry_seconds=1 error={error!r}"


@pytest.mark.heavy
def test_the_pages_effects_are_made_once_under_one_key(side: SinkSide, postgres: Postgres, broker: Broker) -> None:
    transform, effects = hooks.find("plant:transform").load(), hooks.find("plant:effects").load()
    into_postgres = hooks.find("plant:into_postgres").load()
    postgres.write_connection(side.folder / "postgres")
    billed = CloudSide("unused:9092", "billed", side.folder, postgres=postgres)
    with psycopg.connect(postgres.connection) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS billed (device text, customer text, temperature float8)")
        connection.execute("TRUNCATE billed")
    keys = []
    for records in (temperatures(99.5, 900, 20), temperatures(99.5, 900, 20, 90)):
        side.write(records, transform)
        new = side.sink.new_rows()
        assert new is not None
        keys.append(new.key)
        for _ in range(2):  # as after a crash
            effects(new.rows, new.key)
            into_postgres(new.rows, new.key)
    assert keys == [f"{side.sink.id}-{(COMMIT.claim << BATCH_BITS) + batch}" for batch in (2, 3)]
    hot = sorted(row["temperature"] for row in side.table().delta_rows("hot"))
    assert hot == [90, 99.5]
    assert sorted(row["temperature"] for row in billed.rows()) == [20, 90, 99.5]
    name = f"alarms.{uuid4().hex}"
    broker.create_topics(name, partitions=1)
    processing.send_to_topic(new.rows, broker.bootstrap_servers, name, compression_type="gzip")
    reader = side.spark.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    [sent] = reader.option("subscribe", name).load().collect()
    assert bytes(sent["key"]).decode() in bytes(sent["value"]).decode()
    assert json.loads(sent["value"])["temperature"] == 90


@pytest.mark.heavy
def test_the_pages_aggregates_and_alarms(side: SinkSide, postgres: Postgres) -> None:
    transform, hourly = hooks.find("plant:transform").load(), hooks.find("plant:hourly").load()
    postgres.write_connection(side.folder / "postgres")
    with psycopg.connect(postgres.connection) as connection:
        connection.execute("DROP TABLE IF EXISTS dead_alarms")
    letters = CloudSide("unused:9092", "dead_alarms", side.folder, postgres=postgres)
    with Alarms() as alarms:
        plant = (side.folder / "plant.py").read_text().replace("http://127.0.0.1:8090", alarms.url)
        (side.folder / "alarms.py").write_text(plant)
        alarm = hooks.find("alarms:alarm").load()
        for records in (temperatures(99, "warm", 20), temperatures(99, "warm", 20, 90, 100, 50)):
            side.write(records, transform)
            new = side.sink.new_rows()
            assert new is not None
            for _ in range(2):  # as after a crash
                hourly(new.rows, new.key)
                alarm(new.rows, new.key)
        alarms.answers = iter([400, 200])  # for what comes twice, too
        alarm(new.rows, new.key)
        alarm(new.rows, new.key)
        alarms.answers = iter([401])
        with pytest.raises(OSError, match="status 401: as told"):
            alarm(new.rows, new.key)
        alarms.answers = iter([503, 500, 200, 503, 503, 503])
        with pytest.raises(OSError, match="status 503"):
            alarm(new.rows, new.key)
    [hour] = side.table().delta_rows("hours")
    assert (hour["device"], hour["readings"], hour["total"], hour["highest"]) == (DEVICE, 5, 359, 100)
    sent = [json.loads(body)["temperature"] for _, body in alarms.got]
    assert sent == [99, 99, *[90, 100] * 4, 90, *[90] * 3, *[100] * 3]
    assert {mark for mark, _ in alarms.got} == {f'"{json.loads(body)["fingerprint"]}"' for _, body in alarms.got}
    [letter] = letters.rows()
    assert (letter["status"], letter["answer"], json.loads(letter["body"])["temperature"]) == (400, "as told", 90)
    sys.modules.pop("alarms", None)


class Alarms(ThreadingHTTPServer):
    """A service that answers as told, and then with 200."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), AlarmHandler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.got: list[tuple[str, bytes]] = []
        self.answers: Iterator[int] = iter(())
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class AlarmHandler(BaseHTTPRequestHandler):
    """Notes the key and the body of each request."""

    server: Alarms
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.headers["Idempotency-Key"], body))
        self.send_response(next(self.server.answers, 200))
        self.send_header("Content-Length", "7")
        self.end_headers()
        self.wfile.write(b"as told")

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.guarantee(5)
@pytest.mark.kafka
@pytest.mark.heavy
@pytest.mark.parametrize("cloud", [DELTA, POSTGRES], indirect=True)
def test_a_job_with_a_transform_accounts_for_each_event(cloud: CloudSide, plant: Path) -> None:
    """The duplicate of a rejected event has neither a row nor a record in quarantine."""
    hot, neighbour = Event(DEVICE, id=7, time=now(), data={"temperature": 900}), Gateway("gw-2", "00000000000000b2")
    cloud.send([*Gateway().records([*readings(3), hot]), neighbour.record(hot)], 0)
    cloud.start("--transform", "plant:transform")
    cloud.wait_for_receipts(5)
    assert cloud.stop() == 0
    assert [row["reason"] for row in cloud.quarantined()] == ["rejected: temperature out of range"]
    assert {(row["temperature"], row["tariff"]) for row in cloud.rows()} == {(None, "night")}
    assert len(cloud.rows()) == 3
    assert cloud.wait_for_end(cloud.audit()) == 0, cloud.jobs[-1].log()[-3000:]
    (plant / "plant.py").write_text(FAILING)
    cloud.send(Gateway("gw-3", "00000000000000c3").records(readings(1)), 0)
    cloud.start("--transform", "plant:on_an_executor")
    assert cloud.wait_for_end() == 1
    [line] = [line for line in cloud.jobs[-1].log().splitlines() if "stage=failed" in line]
    assert f"plant:on_an_executor: {plant}/plant.py:9: AttributeError" in line
    assert "Py4J" not in cloud.jobs[-1].log()
    assert cloud.receipted() == 5


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("plant", "'plant' is not MODULE:FUNCTION"),
        ("plent:transform", "no module plent in {folder} or on PYTHONPATH"),
        ("plant:transfrom", "has no function transfrom"),
        ("syntax:transform", "syntax cannot be imported: {folder}/syntax.py:1: SyntaxError"),
    ],
)
def test_a_wrong_name_is_told_in_one_sentence(plant: Path, name: str, told: str) -> None:
    (plant / "syntax.py").write_text("def transform(:\n")
    with pytest.raises(argparse.ArgumentTypeError) as refused:
        hooks.find(name)
    assert told.format(folder=plant) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_function_may_stand_at_any_place_of_its_module(plant: Path) -> None:
    defined = (
        "try:\n    import fast\nexcept ImportError:\n    def under(): pass\nnoted: object = len\nimport json as made\n"
    )
    (plant / "placed.py").write_text(defined)
    for name in ("under", "noted", "made"):
        assert hooks.find(f"placed:{name}").name == f"placed:{name}"


def test_a_column_with_a_dot_is_copied(spark: SparkSession) -> None:
    [row] = lines(spark.createDataFrame([("x\t",)], ["a.b"]), {"a.b": StringType()}).collect()
    assert row[0] == "x\\t\n"


def test_a_module_that_cannot_be_imported_ends_the_job_at_its_start(plant: Path) -> None:
    (plant / "broken.py").write_text("# as a deployment that lacks a package\nimport no\ndef transform(): pass\n")
    hook = hooks.find("broken:transform")  # importing may need Spark's session
    with pytest.raises(HookError, match=f"broken:transform: {plant}/broken.py:2: ModuleNotFoundError: No module"):
        Transform(hook)
