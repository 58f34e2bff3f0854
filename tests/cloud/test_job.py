"""The whole job through spark-submit, on a real broker and a real table."""

import shutil
from dataclasses import replace
from urllib.request import urlopen

import pytest

from agent.store.gateway_events import STARTED
from contract.event import Event
from contract.record import ClockTrust
from simulators.services import ports
from simulators.services.kafka.broker import Broker
from tests.cloud.gateway import Gateway, Record, now, readings, signed, without_header
from tests.cloud.running import DELTA, DELTA_ON_S3, ICEBERG, POSTGRES, CloudSide

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

DEVICE = "urn:dev:mac:0000000000000001"
YEAR = 365 * 86_400_000

on_s3 = pytest.param(DELTA_ON_S3, marks=pytest.mark.heavy)
on_both = pytest.mark.parametrize(
    "cloud", [DELTA, pytest.param(POSTGRES, marks=pytest.mark.heavy), on_s3], indirect=True
)
STAGES = [
    *((DELTA_ON_S3, stage) for stage in ("planned", "write", "committed", "receipt")),
    *((POSTGRES, stage) for stage in ("planned", "write", "staged", "committed", "receipt", "done")),
]
"""Of sinks without local files: tests/crashes/job kills the others before each change of a file."""


def figures(port: int) -> dict[str, float]:
    """Read the metrics like Prometheus."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[:1] != "#")}


def ids(*ranges: range) -> list[str]:
    return [str(number) for numbers in ranges for number in numbers]


@pytest.mark.guarantee(5)
@pytest.mark.heavy
@pytest.mark.parametrize("cloud", [DELTA, POSTGRES, ICEBERG, on_s3], indirect=True)
def test_each_event_is_one_row_whatever_comes_twice(cloud: CloudSide) -> None:
    gateway, neighbour = Gateway(), Gateway("gw-2", "00000000000000b2")
    timed, counted = readings(20), [Event(DEVICE, id=number, data={"t": 1}) for number in range(100, 120)]
    first = gateway.records([*timed, *counted])
    bad = [without_header(first[0], "ce_oncegate"), replace(first[1], value=b"{}"), Record(b"k", b"v", [])]
    cloud.send([bad[0], bad[1], *first, *first[:15], bad[2]], partition=0)  # bad ones before the valid
    (cloud.folder / "devices.csv").write_text(f"device,name,site\n{DEVICE},Boiler,house\n")
    [port] = ports.free(1)
    cloud.start("--metrics", f"127.0.0.1:{port}", "--devices", str(cloud.folder / "devices.csv"))
    cloud.wait_for_receipts(58)
    assert cloud.ids() == ids(range(20), range(100, 120))
    assert sorted(row["reason"] for row in cloud.quarantined()) == ["headers", "headers", "value"]

    # Across batches: another gateway's duplicates, on another partition; and events identified by their label only.
    # One is of a later gateway.
    nameless = [Event(DEVICE, data={"t": 1}, ext={"rssi": 1.50}), Event(DEVICE, STARTED, data={"contract": 99})]
    old = [replace(event, id=200, time=event.time - YEAR) for event in timed[:1] if event.time is not None]
    *known, later = neighbour.records([*timed, *counted, *old, *nameless])
    cloud.send([*known, replace(later, headers=[*later.headers, ("later", b"1")])], partition=1)
    cloud.wait_for_receipts(58 + 43)
    rows = cloud.rows()
    assert len(rows) == 43
    assert {(row["device_name"], row["site"], row["tags"]) for row in rows} == {("Boiler", "house", None)}
    cloud.wait(lambda: figures(port).get("oncegate_cloud_records_total") == 58 + 43, "the figures of both batches")
    said = figures(port)
    assert said["oncegate_cloud_rows_total"] == 43
    assert said["oncegate_cloud_quarantined_total"] == 3
    by = "oncegate_cloud_duplicates_total"
    assert said[f'{by}{{by="state"}}'] + said[f'{by}{{by="table"}}'] == 58 + 43 - 43 - 3
    assert said["oncegate_cloud_dropped_by_watermark_total"] == 0
    assert said["oncegate_cloud_receipt_age_seconds_count"] == said["oncegate_cloud_batch_seconds_count"] > 0
    assert said["oncegate_cloud_lag_records"] == 0
    report = "oncegate_cloud_report_timestamp_seconds"
    cloud.wait(lambda: figures(port)[report] > said[report] + 1, "a report that there is nothing to read")
    assert said["oncegate_cloud_unknown_total"] == 1
    cloud.wait_for_log("gateway='gw-2' contract=99")
    found = [(row["data"], row["ext"]) for row in rows if row["id"] is None]
    assert sorted(found) == [('{"contract":99}', None), ('{"t":1}', '{"rssi":1.5}')]
    assert cloud.stop() == 0

    # A lost checkpoint, and all events once more: from other gateways, or as before.
    cloud.remove_checkpoint()
    cloud.send([*first, *bad, *Gateway("gw-3", "00000000000000c3").records([*timed, *counted, *old])], partition=2)
    cloud.start()
    cloud.wait_for_receipts(58 + 43 + 84)
    assert len(cloud.rows()) == 43
    assert len(cloud.quarantined()) == 6  # each record, wherever it is
    assert all(row["raw"] is None for row in cloud.rows())


@pytest.mark.guarantee(5)
@pytest.mark.heavy
@pytest.mark.parametrize("cloud", [DELTA, POSTGRES], indirect=True)
def test_what_another_gateway_writes_in_a_name_is_no_event_of_it_and_keys_are_replaced_while_the_job_runs(
    cloud: CloudSide,
) -> None:
    one, next_one, thief = (bytes([number]) * 32 for number in (1, 2, 3))
    keys = cloud.folder / "gateways.csv"

    def register(*lines: tuple[str, bytes]) -> None:
        new = keys.with_suffix(".new")
        new.touch(0o600)
        new.write_text("".join(f"{gateway},{key.hex()}\n" for gateway, key in lines))
        new.replace(keys)

    register(("gw-1", one), ("gw-2", thief))
    cloud.start("--gateways", str(keys))
    gateway, opened = Gateway(), readings(3)
    lies = [replace(event, data={"t": -1}) for event in opened]
    false = [replace(lie, value=lie.value.replace(b"20.5", b"-1.0")) for lie in Gateway().records(opened[:1])]
    beyond = Gateway(sequence=5_000).records(lies)
    cloud.send([signed(record, thief, cloud.topic) for record in [*false, *beyond]], partition=0)
    cloud.wait_for_receipts(4)
    cloud.send([signed(record, one, cloud.topic) for record in gateway.records(opened)], partition=0)
    cloud.wait_for_receipts(7)
    assert cloud.ids() == ids(range(3))
    assert [row["reason"] for row in cloud.quarantined()] == ["mac"] * 4

    register(("gw-1", one), ("gw-1", next_one), ("gw-2", thief))
    later = gateway.records(readings(3, start=3))
    cloud.send(
        [signed(later[0], one, cloud.topic), *(signed(r, next_one, cloud.topic) for r in later[1:])], partition=0
    )
    cloud.wait_for_receipts(10)
    cloud.wait_for_log("the file of gateways has changed")
    assert cloud.ids() == ids(range(6))
    assert cloud.stop() == 0
    assert cloud.wait_for_end(cloud.audit()) == 0, cloud.jobs[-1].log()[-3000:]


@pytest.mark.guarantee(5)
@pytest.mark.heavy
@on_both
def test_killed_between_commit_and_receipt_it_gives_the_receipt_at_its_next_start(
    cloud: CloudSide, broker: Broker
) -> None:
    cloud.start()
    cloud.wait_for_log("claim=1")
    with cloud.rows_held_back():
        cloud.send(Gateway().records(readings(30)), partition=0)
        # The batch is in Spark, or staged: only the receipt requires Kafka.
        cloud.wait_for_log("stage=look-up" if cloud.postgres is None else "stage=staged")
        broker.pause()
    try:
        cloud.wait_for_log("batch=0 stage=committed")
        cloud.kill()
    finally:
        broker.resume()
    assert cloud.ids() == ids(range(30))
    assert cloud.receipts() == []

    cloud.start()
    cloud.wait_for_receipts(30)
    cloud.wait_for_log("batch=0 stage=skipped")
    assert cloud.ids() == ids(range(30))
    wanted = {(cloud.table_id, 0)}
    cloud.wait(lambda: cloud.named() == wanted, f"the metadata {wanted}")


@pytest.mark.guarantee(5)
@pytest.mark.heavy
def test_fresh_events_are_written_in_one_pass_and_late_ones_among_them_are_found(cloud: CloudSide) -> None:
    cloud.window = "40s"
    gateway = Gateway()
    cloud.start()
    first = gateway.records(readings(5))
    cloud.send(first)
    sent = 5

    def fresh_traffic_is_written_in_one_pass() -> bool:
        nonlocal sent
        cloud.send(gateway.records(readings(1, start=sent)))
        sent += 1
        return "passes=1" in cloud.jobs[-1].log()

    cloud.wait(fresh_traffic_is_written_in_one_pass, "a batch in one pass")
    log_before = len(cloud.jobs[-1].log())
    old = replace(readings(1)[0], id=10_000, time=now() - YEAR)
    copies = Gateway("gw-2", "00000000000000b2", clock=ClockTrust.UNTRUSTED)
    twice = readings(1, start=10_001)[0]
    late = [gateway.record(old), copies.record(old), gateway.record(twice), copies.record(twice), *first]
    cloud.send([*late, without_header(first[0], "ce_id")])
    cloud.wait_for_receipts(sent + len(late) + 1)
    assert sorted(cloud.ids(), key=int) == ids(range(sent), range(10_000, 10_002))
    assert len(cloud.quarantined()) == 1
    after = cloud.jobs[-1].log()[log_before:]
    assert "passes=2" in after
    assert "dropped_by_watermark=0" in cloud.jobs[-1].log()


@pytest.mark.guarantee(5)
@pytest.mark.heavy
@pytest.mark.parametrize(("cloud", "stage"), STAGES, indirect=["cloud"])
def test_killed_at_any_stage_it_loses_and_doubles_nothing(cloud: CloudSide, stage: str, gateway: Gateway) -> None:
    first = gateway.records(readings(200))
    cloud.send(first)
    cloud.start()
    cloud.wait_for_log(f"batch=0 stage={stage}")
    cloud.kill()
    cloud.send([*first[:100], *gateway.records(readings(50, start=200))])
    cloud.start()
    cloud.wait_for_receipts(350)
    assert cloud.ids() == ids(range(250))


@pytest.mark.guarantee(5)
@pytest.mark.heavy
@pytest.mark.parametrize("cloud", [DELTA, POSTGRES, ICEBERG], indirect=True)
def test_a_checkpoint_restored_from_an_older_copy_reads_again_and_writes_nothing_twice(cloud: CloudSide) -> None:
    gateway = Gateway()
    total = 0
    for batch in range(3):
        cloud.send(gateway.records(readings(10, start=total)), partition=0)
        total += 10
        cloud.start()
        cloud.wait_for_receipts(total)
        assert cloud.stop() == 0
        if batch == 0:
            shutil.copytree(cloud.folder / cloud.checkpoint, cloud.folder / "copy")
    shutil.rmtree(cloud.folder / cloud.checkpoint)
    shutil.move(cloud.folder / "copy", cloud.folder / cloud.checkpoint)
    cloud.send(gateway.records(readings(10, start=total)), partition=0)
    cloud.start()  # one batch that overlaps the table's offsets
    cloud.wait_for_receipts(40)
    assert cloud.ids() == ids(range(40))
    assert "batch=-1 stage=receipt" in cloud.jobs[-1].log()
    cloud.send(gateway.records(readings(10, start=40)), partition=0)
    cloud.wait_for_receipts(50)
    assert cloud.ids() == ids(range(50))
