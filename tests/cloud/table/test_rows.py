import json
import time
from dataclasses import replace
from datetime import date
from functools import reduce
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from cloud.delta.sink import TABLE
from cloud.delta.table import DeltaTable
from cloud.stream.records import read_records
from cloud.table import id_reuse, lookup
from cloud.table.rows import SCHEMA, decode
from contract.event import TIME_MAX, Event
from contract.fields import RETENTION_SECONDS
from contract.record import ClockTrust, json_text
from tests.cloud.gateway import Gateway, Record
from tests.cloud.tables import ACCEPTED, COMMIT, DAY, DEVICE, topic

pytestmark = pytest.mark.spark

LATER = b',"later":{"data":{"units":[1.10]}},"more":-1.50'
ADDED = [(b"", b""), (LATER, LATER), (b"", b',"last":{"a":1.50}')]
"""What a later gateway adds in front of `data`, and at the end."""
DECODING_SECONDS_MAX = 60

names = st.text(max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.text(max_size=20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(['"', "}", ',"units":{', '"}}', '\\","via":"', "é😀\u2028"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
data = st.dictionaries(names | st.sampled_from(["units", "data", "ext", "via", "$bytes"]), values, max_size=4)
units = st.none() | st.dictionaries(names | st.just("units"), st.text(max_size=6), max_size=3)


def decoded(spark: SparkSession, records: list[Record], appended: int | None = None) -> list[Row]:
    frame = decode(read_records(topic(spark, records, appended)))
    assert frame.schema.names == SCHEMA.names
    return frame.orderBy("kafka_offset").collect()


def test_a_row_has_all_that_the_event_says(spark: SparkSession) -> None:
    """Of any size; and the day of its acceptance where its time is no identity."""
    event = Event(
        "kitchen, north", "door", id="a-1", boot=3, time=1_700_000_000_123, data={"open": True}, units={"open": "/"}
    )
    text = 'x\\"}' * 100_000
    large = Event(DEVICE, id=1, data={"a": text}, units={"a": text})
    records = Gateway().records([event, Event(DEVICE, id=1), large], ACCEPTED)
    row, untimed, long = decoded(spark, records, ACCEPTED)
    said = {name: row[name] for name in ("device", "type", "id", "boot", "data", "units", "via", "raw", "day")}
    assert said == {
        "device": "kitchen, north",
        "type": "door",
        "id": "a-1",
        "boot": "3",
        "data": '{"open":true}',
        "units": '{"open":"/"}',
        "via": "coap",
        "raw": None,
        "day": date(2023, 11, 14),
    }
    assert (untimed["day"], untimed["event_time"], untimed["data"]) == (date(2023, 11, 14), None, None)
    assert json.loads(long["data"]) == {"a": text}


# Each example is a job of Spark, whatever its rows.
@settings(max_examples=3, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(data, units, st.none() | data, st.sampled_from(ADDED)), min_size=25, max_size=25))
def test_objects_stay_the_exact_texts_whatever_else_a_later_gateway_sends(
    spark: SparkSession, drawn: list[tuple[dict[str, object], dict[str, str], dict[str, object], tuple[bytes, bytes]]]
) -> None:
    events = [Event(DEVICE, id=n, data=one, units=unit, ext=ext) for n, (one, unit, ext, _) in enumerate(drawn)]  # type: ignore[arg-type]  # hypothesis
    records = [
        replace(record, value=record.value.replace(b',"via":"coap"', b',"via":"coap"' + before, 1)[:-1] + behind + b"}")
        for record, (*_, (before, behind)) in zip(Gateway().records(events), drawn, strict=True)
    ]
    rows = decoded(spark, records)
    assert [row["data"] for row in rows] == [json_text(one) for one, *_ in drawn]
    assert [row["units"] for row in rows] == [json_text(unit) if unit else None for _, unit, *_ in drawn]
    assert [row["ext"] for row in rows] == [json_text(ext) if ext else None for _, _, ext, _ in drawn]
    assert [row["raw"] for row in rows] == [None] * len(drawn)


@pytest.mark.guarantee(5)
def test_a_value_that_fails_keeps_its_bytes_and_has_no_data(spark: SparkSession) -> None:
    record = Gateway().record(Event(DEVICE, id=1, time=ACCEPTED, data={"a": 1}))
    head = record.value[: record.value.index(b'"via"')]
    tails = [b'"data":{"a":}}', b'"received":"soon"}', b'"x":1}', b'"via":7,"data":{"a":[1}}']
    times = [2**63 - 1, -(10**16), TIME_MAX + 1]
    broken = [replace(record, value=head + tail) for tail in tails]
    broken += [replace(record, value=record.value[:-1] + b',"time":%d}' % time) for time in times]
    for record, row in zip(broken, decoded(spark, broken), strict=True):
        assert (row["data"], bytes(row["raw"]), row["device"]) == (None, record.value, DEVICE)
        assert row["event_time"] is not None


@pytest.mark.guarantee(5)
def test_a_value_made_for_the_search_of_its_data_takes_no_quadratic_time(spark: SparkSession) -> None:
    """In a search from each place of the value, one of 1 MB would take minutes, at each start of the job again."""
    record = Gateway().record(Event(DEVICE, id=1, data={"a": 1}))
    again = b',"via":"","data":{}' * (1 << 16)
    decoded(spark, [record])  # so that Spark has started and compiled, which takes most of a minute on a busy machine
    begun = time.monotonic()
    [row] = decoded(spark, [replace(record, value=record.value[:-1] + again + b"x}")])
    assert row["raw"] is not None
    assert time.monotonic() - begun < DECODING_SECONDS_MAX


def test_days_without_a_place_share_one(spark: SparkSession) -> None:
    moments = {
        946_684_799_999: date(1970, 1, 1),
        946_684_800_000: date(2000, 1, 1),
        4_133_980_800_000: date(1970, 1, 1),
    }
    records = [Gateway().record(Event(DEVICE, id=1, time=moment)) for moment in moments]
    frames = [
        topic(spark, [record], moment, at) for at, (record, moment) in enumerate(zip(records, moments, strict=True))
    ]
    rows = decode(read_records(reduce(DataFrame.union, frames))).orderBy("kafka_offset").collect()
    assert [row["day"] for row in rows] == [*moments.values()]


@pytest.mark.guarantee(5)
def test_a_time_far_from_its_append_makes_no_partition_of_its_own(spark: SparkSession) -> None:
    """A sender of arbitrary times would otherwise create a folder for each of 36,525 days."""
    ages = {-3: False, -2: True, 366: True, 367: False}
    events = [Event(DEVICE, id=1, time=ACCEPTED - age * DAY) for age in ages]
    rows = decoded(spark, Gateway().records(events), appended=ACCEPTED)
    assert [row["day"] != date(1970, 1, 1) for row in rows] == list(ages.values())


EVENT = Event(DEVICE, id=1, data={"n": 1})


def read(spark: SparkSession, record: Record, appended: int, offset: int = 0) -> DataFrame:
    records = read_records(topic(spark, [record], appended, offset), RETENTION_SECONDS)
    return records.withColumn("fresh", F.lit(False))


def record(received: int, clock: ClockTrust, gateway: str) -> Record:
    return Gateway(gateway, f"00000000000000{gateway[-1]:0>2}", clock=clock).record(EVENT, received)


@pytest.mark.guarantee(5)
@pytest.mark.heavy
def test_a_clock_that_nobody_trusts_makes_no_copy_look_like_an_id_used_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = DeltaTable(spark, str(tmp_path / "events"), TABLE)
    table.append(decode(read(spark, record(ACCEPTED, ClockTrust.TRUSTED, "gw-1"), ACCEPTED)), COMMIT)
    copy = read(spark, record(0, ClockTrust.UNTRUSTED, "gw-2"), ACCEPTED + 60_000, 1)
    found = lookup.find(copy, table.rows(), lookup.Search(1))

    assert found.count == 1
    assert id_reuse.reused_ids(copy, found.rows, RETENTION_SECONDS, has_equals=False).isEmpty()


@pytest.mark.guarantee(5)
@pytest.mark.heavy
@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ((ACCEPTED, ClockTrust.TRUSTED), (ACCEPTED + 1_000, ClockTrust.UNTRUSTED)),
        ((ACCEPTED + 29 * DAY, ClockTrust.UNTRUSTED), (ACCEPTED + 30 * DAY, ClockTrust.TRUSTED)),
    ],
)
def test_a_clock_that_nobody_trusts_hides_no_id_used_again(
    spark: SparkSession, tmp_path: Path, earlier: tuple[int, ClockTrust], later: tuple[int, ClockTrust]
) -> None:
    table = DeltaTable(spark, str(tmp_path / "events"), TABLE)
    table.append(decode(read(spark, record(*earlier, "gw-1"), ACCEPTED)), COMMIT)
    again = read(spark, record(*later, "gw-2"), ACCEPTED + 30 * DAY, 1)
    found = lookup.find(again, table.rows(), lookup.Search(1))

    reused = id_reuse.reused_ids(again, found.rows, RETENTION_SECONDS, has_equals=False)
    assert [(row["reason"], row["kafka_offset"]) for row in reused.collect()] == [("id_reused", 1)]


@pytest.mark.guarantee(5)
def test_a_clock_that_nobody_trusts_joins_no_two_events_in_the_dedups_state(spark: SparkSession) -> None:
    first = read(spark, record(ACCEPTED, ClockTrust.TRUSTED, "gw-1"), ACCEPTED)
    again = read(spark, record(ACCEPTED, ClockTrust.UNTRUSTED, "gw-2"), ACCEPTED + 30 * DAY, 1)
    copy = read(spark, record(ACCEPTED - 900 * DAY, ClockTrust.UNTRUSTED, "gw-2"), ACCEPTED, 2)

    assert first.union(again).dropDuplicates(["key"]).count() == 2
    assert first.union(copy).dropDuplicates(["key"]).count() == 1
