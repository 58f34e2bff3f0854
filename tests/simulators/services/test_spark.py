"""A job runs through spark-submit with the project's packages and jars, and SIGKILL ends all of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from contract import topics
from simulators.services import session, spark
from simulators.services.kafka.broker import Broker

pytestmark = pytest.mark.spark

START_SECONDS_MAX = 180.0
# Python workers come from a daemon that moves to a group of its own; the classes show that the jars are there.
JOB = """
import sys, time
from pyspark.sql import SparkSession
import contract
session = SparkSession.builder.getOrCreate()
loader = session._jvm.java.lang.Thread.currentThread().getContextClassLoader()
loader.loadClass("org.apache.spark.sql.kafka010.KafkaSourceProvider")
loader.loadClass("io.delta.tables.DeltaTable")
print("contract from", contract.__file__, flush=True)
print("counted", session.sparkContext.parallelize(range(10), 2).map(lambda number: number + 1).sum(), flush=True)
print("arguments", sys.argv[1:], flush=True)
while True:
    time.sleep(0.1)
"""
CARRY = """
import sys
from pyspark.sql import SparkSession
session = SparkSession.builder.getOrCreate()
servers, topic, table = sys.argv[1:]
records = session.read.format("kafka").options(**{"kafka.bootstrap.servers": servers, "subscribe": topic}).load()
records.select("value").write.format("delta").save(table)
print("rows", [bytes(row.value) for row in session.read.format("delta").load(table).collect()], flush=True)
"""
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


@pytest.mark.heavy
def test_kill_ends_the_jvm_and_its_python_together(tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(JOB)
    process = spark.submit(job, ("stay",), tmp_path / "work")
    try:
        process.wait_for_log("arguments ['stay']", START_SECONDS_MAX)
        assert "counted 55" in process.log()
        assert "packages.zip/contract" in process.log()
        assert len(session.members(process.pid)) >= 2
    finally:
        process.kill()

    assert session.members(process.pid) == []


@pytest.mark.heavy
@pytest.mark.kafka
def test_the_pinned_jars_fit_together_from_kafka_to_delta(tmp_path: Path) -> None:
    job = tmp_path / "carry.py"
    job.write_text(CARRY)
    with Broker(tmp_path / "kafka") as broker:
        broker.create_topics()
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce(topics.EVENTS, b"carried")
        assert producer.flush(START_SECONDS_MAX) == 0

        arguments = (broker.bootstrap_servers, topics.EVENTS, str(tmp_path / "table"))
        process = spark.submit(job, arguments, tmp_path / "work", spark.SparkOptions(settings=DELTA))
        status = process.wait(START_SECONDS_MAX)

    assert "rows [b'carried']" in process.log()
    assert status == 0


def test_the_archive_is_the_same_for_the_same_sources(tmp_path: Path) -> None:
    first = spark.pack(("contract",), tmp_path / "first.zip").read_bytes()

    assert spark.pack(("contract",), tmp_path / "second.zip").read_bytes() == first
