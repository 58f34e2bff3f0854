"""The procedures of docs/table.md, with a real job and a real topic."""

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import OFFSET_END
from pyspark.sql import SparkSession

from agent.status import GatewayStatus, read_status
from contract.receipt import GROUP_DEFAULT
from tests.cloud.gateway import Gateway, readings
from tests.cloud.procedures import command, section, statements
from tests.cloud.running import DELTA, PARTITIONS, POSTGRES, CloudSide
from tests.support.commands import output_of
from tests.support.posting_gateway import PostingGateway
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.heavy, pytest.mark.spark, pytest.mark.kafka]

ERASED, KEPT = "urn:dev:mac:00158d0001a2b3c4", "urn:dev:mac:00158d0001a2b3c5"
REMAINING = {
    *("fingerprint", "device", "type", "event_time", "received", "clock", "appended", "gateway", "epoch", "sequence"),
    *("via", "kafka_partition", "kafka_offset", "processed_at", "day"),
}
"""What an erased event's row still has, in docs/table.md."""
on_both = pytest.mark.parametrize("cloud", [DELTA, POSTGRES], indirect=True)


def execute(statement: str, spark: SparkSession, events: CloudSide, second: CloudSide | None = None) -> None:
    tables = {"events": events} | ({"second": second} if second else {})
    for name, cloud in tables.items():
        if cloud.postgres is None:
            statement = statement.replace(f"delta.`/srv/oncegate/{name}`", f"delta.`{cloud.place('events')}`")
        else:
            statement = re.sub(rf"\b{name}\b", cloud.table_name, statement)
    if events.postgres is None:
        spark.sql(statement)
        return
    with psycopg.connect(events.postgres.connection) as connection:
        connection.execute(statement.encode())


def language(cloud: CloudSide) -> str:
    return "Delta" if cloud.postgres is None else "PostgreSQL"


def devices(cloud: CloudSide) -> list[str]:
    return sorted(row["device"] for row in cloud.rows())


def run_until(cloud: CloudSide, records: int, *options: str) -> None:
    """Run the job until the receipts cover the records, and Spark has noted the batch as done."""
    job = cloud.start(*options)
    cloud.wait_for_log(" stage=started")
    cloud.wait_for_receipts(records)
    cloud.wait(lambda: job.log().count("stage=planned") == job.log().count("stage=done"), "the batch is done")
    assert cloud.stop() == 0


@pytest.fixture
def second(cloud: CloudSide) -> Iterator[CloudSide]:
    """Yield another table on the same topic, in the same sink."""
    folder = cloud.folder / "second"
    folder.mkdir()
    side = CloudSide(cloud.bootstrap_servers, cloud.topic, folder, table_suffix="2", postgres=cloud.postgres)
    yield side
    side.close()


@on_both
def test_the_events_of_one_device_are_erased_and_nothing_else_changes(cloud: CloudSide, spark: SparkSession) -> None:
    gateway, neighbour = Gateway(), Gateway("gw-2", "00000000000000b2")
    erased = readings(10, ERASED)
    cloud.send(gateway.records([*erased, *readings(10, KEPT)]))
    run_until(cloud, 20)

    erase, _ = statements("Erase the events of a device", language(cloud))
    execute(erase, spark, cloud)
    assert devices(cloud) == [KEPT] * 10 + ["urn:oncegate:erased"] * 10
    rows = [row for row in cloud.rows() if row["device"] != KEPT]
    assert {name for row in rows for name, value in row.items() if value is not None} == REMAINING

    cloud.send([*gateway.records(readings(5, KEPT, start=10)), *neighbour.records(erased)])
    run_until(cloud, 35)
    assert devices(cloud) == [KEPT] * 15 + ["urn:oncegate:erased"] * 10, "a duplicate of an erased event is one"
    audit = cloud.audit()
    assert cloud.wait_for_end(audit) == 0, audit.log()
    assert "accepted 25, duplicate 10" in audit.log()


@on_both
def test_after_rows_were_deleted_the_job_goes_on_the_audit_names_them_and_the_topic_fills_them(
    cloud: CloudSide, spark: SparkSession, gateway: Gateway
) -> None:
    cloud.send(gateway.records([*readings(10, ERASED), *readings(10, KEPT)]))
    run_until(cloud, 20)

    _, delete = statements("Erase the events of a device", language(cloud))
    execute(delete, spark, cloud)
    assert devices(cloud) == [KEPT] * 10

    cloud.send(gateway.records(readings(5, KEPT, start=10)))
    if cloud.postgres is None:  # the job does not continue by itself after another program has removed rows
        stopped = cloud.start()
        assert cloud.wait_for_end(stopped) == 1
        assert "DELETE" in stopped.log()
        cloud.checkpoint = "another"
    run_until(cloud, 25)
    assert devices(cloud) == [KEPT] * 15
    audit = cloud.audit()
    assert cloud.wait_for_end(audit) == 1, audit.log()
    assert "Not whole: 10 labels missing, 10 records unwritten." in audit.log()

    again = command("Backfill from the topic")
    assert again.read_again
    assert Path(again.checkpoint).name != cloud.checkpoint
    cloud.checkpoint = Path(again.checkpoint).name
    cloud.start("--read-again")
    cloud.wait_for_rows(25)
    assert cloud.stop() == 0
    assert devices(cloud) == [ERASED] * 10 + [KEPT] * 15


@on_both
def test_the_topic_is_reprocessed_into_a_second_table_that_succeeds_the_first(
    cloud: CloudSide, second: CloudSide, spark: SparkSession, gateway: Gateway
) -> None:
    cloud.send(gateway.records(readings(20)), partition=0)
    run_until(cloud, 20)
    cloud.delete_records({0: 15})
    cloud.send(gateway.records(readings(10, start=20)), partition=0)
    run_until(cloud, 30)

    filled = command("Fill a second table")
    assert filled.kafka.group != GROUP_DEFAULT
    (second.folder / "devices.csv").write_text(f"device,name\n{readings(1)[0].device},Boiler\n")
    names = ("--devices", str(second.folder / "devices.csv"))
    job = second.start("--group", f"{cloud.group}-{filled.kafka.group}", *names)
    second.wait_for_rows(15)
    assert second.stop() == 0, job.log()
    assert {table for table, _ in cloud.named()} == {cloud.table_id}, "the first table's receipts are unchanged"

    [statement] = statements("Reprocess the topic", language(cloud))
    execute(statement, spark, cloud, second)
    switched = command("Reprocess the topic")
    assert (switched.tables.table, switched.checkpoint, switched.succeeds) == (
        filled.tables.table,
        filled.checkpoint,
        "ID",
    )
    assert switched.kafka.group == GROUP_DEFAULT
    first_id = re.findall(r" table=(\S+) claim=1 ", cloud.jobs[0].log())
    assert first_id == [cloud.table_id]
    cloud.send(gateway.records(readings(5, start=30)), partition=0)
    second.start("--succeeds", first_id[0], *names)
    second.wait_for_rows(35)
    second.wait(lambda: second.succeeded() == {cloud.table_id}, "receipts that name the table that was replaced")
    assert second.stop() == 0
    assert second.ids() == [str(number) for number in range(35)]
    assert sum(row["device_name"] == "Boiler" for row in second.rows()) == 20, "what the topic had, was written anew"


def test_what_the_topic_has_no_longer_is_filled_from_the_gateways(cloud: CloudSide, tmp_path: Path) -> None:
    gateway = PostingGateway(tmp_path, tmp_path / "state", cloud.bootstrap_servers, 'keep_processed = "1d"')

    def status() -> GatewayStatus:
        return read_status(tmp_path / "state", "gw1")

    def replay() -> str:
        [line] = re.findall(r"^sudo oncegate (replay .*)$", section("Backfill from the gateways"), re.MULTILINE)
        words = line.replace("EPOCH", str(status().epoch)).split()
        command = (sys.executable, "-m", "agent.cli.main", *words, "--config", tmp_path / "oncegate.toml")
        return output_of(*command, environment=cloud.of_gateways)

    with gateway.process(cloud.of_gateways):
        gateway.start()
        assert gateway.post(20) == 200
        run_until(cloud, 21)  # with the gateway's own event that begins the epoch
        wait_until(lambda: status().events.processed == 21, "the gateway has all receipts", 60)

        lost, cloud.checkpoint = cloud.table_id, "checkpoint-2"
        shutil.rmtree(cloud.place("events"))
        cloud.delete_records(dict.fromkeys(range(PARTITIONS), OFFSET_END))
        job = cloud.start("--succeeds", lost)
        cloud.wait_for_log(" stage=started")
        assert cloud.rows() == []
        assert "21 events" in replay()
        cloud.wait_for_rows(21)
        replay()
        cloud.wait(lambda: job.log().count("stage=receipt") > 1, "the receipts after the second replay")
        assert cloud.stop() == 0
    assert len(cloud.rows()) == 21


@on_both
def test_a_table_with_a_column_of_its_own_is_written_and_filled(cloud: CloudSide, spark: SparkSession) -> None:
    gateway = Gateway()
    cloud.send(gateway.records(readings(10, ERASED)))
    run_until(cloud, 10)
    add, fill = statements("Change the schema", language(cloud))
    execute(add, spark, cloud)
    cloud.send(gateway.records(readings(10, KEPT)))
    cloud.start()
    cloud.wait_for_receipts(20)
    execute(fill, spark, cloud)  # while the job runs
    cloud.send(gateway.records(readings(10, ERASED, start=10)))
    cloud.wait_for_receipts(30)
    assert cloud.stop() == 0
    rooms = sorted((row["device"], int(row["id"]), row["room"]) for row in cloud.rows())
    boiler = [(ERASED, number, "boiler") for number in range(10)]
    assert rooms == [*boiler, *((ERASED, n, None) for n in range(10, 20)), *((KEPT, n, None) for n in range(10))]
    if cloud.postgres is None:  # nor does its next start take the UPDATE for a loss
        run_until(cloud, 30)
