"""The leaves that the audit computes, from rows and from values, are those that the gateway has hashed."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cloud.auditing import leaves
from cloud.auditing.topic import TOLD, said, told
from cloud.stream.records import read_records
from cloud.table.rows import COLUMNS, decode
from contract.chain import leaf
from contract.event import TIME_MAX, TIME_MIN, Event
from contract.fingerprint import FINGERPRINT_BYTES
from contract.record import VALUE_PREFIX, encode_tail
from tests.cloud.gateway import Gateway, Record
from tests.cloud.tables import topic
from tests.contract.strategies import events as drawn_events

pytestmark = pytest.mark.spark

ACCEPTED = 1_763_706_000_123
DEVICE = "urn:dev:ops:32473-a"
CONTROLS = "".join(map(chr, range(0x20)))
EVENTS = [
    Event(DEVICE, id=7, time=ACCEPTED - 5, data={"t": 21.5, "n": None}),
    Event(DEVICE, id="7", boot="-0", data={"id": "7", "boot": "7"}),
    Event(DEVICE, id="007", boot="7.0", data={}),
    Event(DEVICE, id="7\n", boot="7\n", data={}),
    Event(DEVICE, id="", boot="", data={"a": {"units": {"x": "y"}}}),
    Event(DEVICE, id=-(1 << 63), boot=(1 << 64) - 1, time=TIME_MIN, data={"v": [1, 2.50, 1e300]}),
    Event(DEVICE, id="x", time=TIME_MAX, offset_ms=-5, units={"t": "°C", "a/b": "\u2028"}, data={"t": 1}),
    Event(f'kitchen "north" \\ {CONTROLS} é😀\u2028\x7f', f'door"\\{CONTROLS}', id=f'"{CONTROLS}\\', data=None),
    Event(DEVICE, id=f"\\u001B{CONTROLS}", data={"text": CONTROLS}, units={CONTROLS: f"\\u001B\\\\u000B{CONTROLS}\\"}),
    Event(DEVICE, "gateway.checkpoint", id="1", data={"first": 1, "digest": "ab"}),
    Event(DEVICE, id="u", units={"😀": "\U0010ffff", "": '\\ud83d,"units":{'}),
    Event(DEVICE, id="e", data={"ext": {"a": 1.50}}, ext={"rssi": -7.10, "data": {"units": {"x": "y"}}, "😀": "}"}),
    Event(DEVICE, id="e", ext={"linkquality": 120}),
    Event(DEVICE, id="u", units={"t": "😀"}, data={"a": ["}", {"units": {"t": "K"}}], "units": {"t": "K"}}),
]


def gateway_leaf(record: Record, event: Event) -> str:
    """Return the leaf as the agent computes it."""
    at = len(VALUE_PREFIX)
    fingerprint = bytes.fromhex(record.value[at : at + 2 * FINGERPRINT_BYTES].decode())
    return leaf(fingerprint + encode_tail(event, ACCEPTED, "coap")).hex()


@pytest.mark.guarantee(8)
def test_rows_and_values_have_the_leaves_of_their_events(spark: SparkSession) -> None:
    check(spark, EVENTS)


@pytest.mark.guarantee(8)
@pytest.mark.heavy
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(drawn_events, min_size=10, max_size=40))
def test_rows_and_values_of_any_events_have_their_leaves(spark: SparkSession, events: list[Event]) -> None:
    check(spark, events)


def check(spark: SparkSession, events: list[Event]) -> None:
    """Compare the leaves of rows and values with those of the agent."""
    gateway = Gateway('gw-"1"\\')
    records = gateway.records(events, ACCEPTED)
    whole = Gateway().record(Event(DEVICE, id=1), ACCEPTED)  # no text of which needs decoding of the value
    broken = replace(whole, value=whole.value[:-1] + b',"data":{"x":}}')
    sent = topic(spark, [*records, broken], ACCEPTED)
    frame = read_records(sent)
    rows = (
        decode(frame)
        .select("kafka_offset", F.hex(leaves.of_row(COLUMNS)).alias("leaf"), told(*map(F.col, TOLD)).alias("told"))
        .orderBy("kafka_offset")
        .collect()
    )
    of_value = F.hex(leaves.of_value(F.col("value"), F.col("fingerprint"))).alias("leaf")
    values = frame.select("kafka_offset", of_value).orderBy("kafka_offset").collect()
    told_of_records = sent.orderBy("offset").select(said().alias("told")).collect()
    assert [row["told"] for row in rows][:-1] == [row["told"] for row in told_of_records][:-1]
    for number, (record, event) in enumerate(zip(records, events, strict=True)):
        expected = gateway_leaf(record, event).upper()
        assert values[number]["leaf"] == expected, event
        assert rows[number]["leaf"] == expected, event
    assert rows[-1]["leaf"] == values[-1]["leaf"] is not None  # a value that cannot be decoded is kept as it is


def test_rows_of_a_table_without_the_latest_columns_have_the_leaves_of_their_events(spark: SparkSession) -> None:
    event = Event(DEVICE, id=1, data={"a": 1})
    record = Gateway().record(event, ACCEPTED)
    older = decode(read_records(topic(spark, [record], ACCEPTED))).drop("ext", "units")
    [row] = older.select(F.hex(leaves.of_row(older.columns)).alias("leaf")).collect()
    assert row["leaf"] == gateway_leaf(record, event).upper()


def test_what_is_no_value_of_a_gateway_has_no_leaf(spark: SparkSession) -> None:
    good = Gateway().record(EVENTS[0], ACCEPTED).value
    bad = [b"", b"v", good[:-2], good[1:], good.replace(b'"epoch"', b'"Epoch"'), b"\xff" + good]
    frame = spark.createDataFrame([(value,) for value in bad], "value binary")
    found = frame.select(leaves.of_value(F.col("value"), F.lit(bytes(16))).alias("leaf")).collect()
    assert [row["leaf"] for row in found] == [None] * len(bad)
