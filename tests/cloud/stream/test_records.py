from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import QueryProgressEvent

from cloud.gateways import GatewayFile
from cloud.plain_consumer.records import Appended, judge
from cloud.stream.progress import Observer, ProgressLines
from cloud.stream.records import OBSERVATION, key_frame, read_records
from cloud.table.layout import STAGED
from contract.event import TIME_MAX, TIME_MIN, Event
from contract.fields import VERSION
from contract.record import HEADERS, STATEMENT
from contract.topics import EVENTS
from tests.cloud.gateway import Gateway, Record, now, signed, with_header, with_more, with_word, without_header
from tests.cloud.tables import topic

pytestmark = pytest.mark.spark

TIMED = Event("urn:dev:mac:0000000000000001", id=7, time=1_700_000_000_123, data={"t": 20.5})
SEEN = datetime(2026, 1, 1, tzinfo=UTC)
GATEWAY, EPOCH, SEQUENCE, RECEIVED, CLOCK, SHARED, BOUND = range(7)
"""The words of the statement."""
CONTROLS = "".join(map(chr, range(0x20)))
UNBOUND = Event("urn:dev:mac:0000000000000001", id=7, data={"t": 20.5})


def good() -> Record:
    return Gateway().record(TIMED)


def test_a_record_is_read_from_its_headers(spark: SparkSession) -> None:
    """Also with the first and the last times of all, and without a bound."""
    record, times = good(), (TIME_MIN, -1, 0, TIME_MAX)
    others = [Gateway().record(UNBOUND), *Gateway().records(replace(TIMED, time=time) for time in times)]
    frame = read_records(topic(spark, [record, *others])).orderBy("kafka_offset")
    moments = "event_time <=> bound AS is_its_time", "unix_millis(bound) AS bound"
    shown = frame.selectExpr("reason", "fingerprint", "key", "type", "gateway", "sequence", "shared", *moments)
    row, unbound, *timed = shown.collect()
    assert row["reason"] is None
    assert row["fingerprint"].hex() == dict(record.headers)["ce_id"].decode()
    assert row["key"] == row["fingerprint"]
    assert (row["type"], row["gateway"], row["sequence"], row["shared"]) == ("reading", "gw-1", 1, "time")
    assert row["is_its_time"]
    assert (unbound["reason"], unbound["bound"]) == (None, None)
    assert [(one["reason"], one["bound"]) for one in timed] == [(None, time) for time in times]


def test_equal_ids_accepted_a_retention_apart_have_keys_of_their_own_however_young_they_are(
    spark: SparkSession,
) -> None:
    week, gateway = 7 * 86_400_000, Gateway(horizon=60_000)
    moments = (4 * week, 4 * week + 1, 5 * week + 1)
    frame = topic(spark, [gateway.record(UNBOUND, moment) for moment in moments], appended=5 * week + 1)
    first, copy, reused = (bytes(row["key"]) for row in read_records(frame).orderBy("kafka_offset").collect())
    assert first == copy != reused


def test_a_moment_of_kafka_that_databases_lack_is_null_and_no_fault(spark: SparkSession) -> None:
    frame = topic(spark, [good()]).withColumn("timestamp", F.expr("timestamp'+12026-01-01T00:00:00Z'"))
    row = read_records(frame).selectExpr("reason", "appended is null as gone").collect()[0]
    assert (row["reason"], row["gone"]) == (None, True)


def test_what_a_later_gateway_adds_is_ignored_and_headers_are_found_in_any_order(spark: SparkSession) -> None:
    record = good()
    shuffled = replace(record, headers=[("x", b"1"), *reversed(record.headers), ("traceparent", b"2")])
    longer = with_header(record, STATEMENT, dict(record.headers)[STATEMENT] + b" rssi=7 - time")
    straight, *others = read_records(topic(spark, [record, shuffled, longer])).collect()
    names = straight.asDict().keys() - {"kafka_offset", "seen", "has_unknown"}
    assert straight["has_unknown"] is False
    for other in others:
        assert (other["reason"], other["has_unknown"]) == (None, True)
        assert {name: straight[name] for name in names} == {name: other[name] for name in names}


def test_what_a_gateway_states_of_itself_is_read_and_only_its_own_event_states_it(spark: SparkSession) -> None:
    data = {"contract": 9, "retention_seconds": 60}
    events = [Event("urn:dev:gateway:gw-1", kind, "e", data=data) for kind in ("gateway.started", "reading")]
    records = [Gateway("gw-1").record(event, now()) for event in events]
    found = read_records(topic(spark, records), 60).union(read_records(topic(spark, records), 61))
    rows = [(row["newer"], row["retention"]) for row in found.collect()]
    assert rows == [("9 gw-1", None), (None, None), ("9 gw-1", "60 gw-1"), (None, None)]
    judged = [
        judge(one.key, one.value, one.headers, Appended(0, 0, 0), seen=datetime.now(UTC), known={}) for one in records
    ]
    assert [(one.contract, one.retention_seconds) for one in judged] == [(9, 60), (VERSION, None)]


KEYS = {"gw-1": (bytes(32), bytes(range(32))), "gw-2": (b"2" * 32,)}


def altered(record: Record) -> Record:
    return replace(record, value=record.value.replace(b'"t":20.5', b'"t":99.9'))


SIGNED: list[tuple[Record, str | None]] = [
    (signed(good(), KEYS["gw-1"][0]), None),
    (signed(good(), KEYS["gw-1"][1]), None),
    (with_more(signed(good(), bytes(32)), b" 9"), None),
    (good(), "mac"),
    (signed(good(), KEYS["gw-2"][0]), "mac"),
    (signed(good(), bytes(32), "another"), "mac"),
    (altered(signed(good(), bytes(32))), "mac"),
    (with_word(signed(good(), bytes(32)), CLOCK, "untrusted"), "mac"),
    (with_word(signed(good(), bytes(32)), GATEWAY + 7, ""), "mac"),
    (without_header(good(), "ce_specversion"), "mac"),
    (without_header(signed(good(), bytes(32)), "ce_specversion"), "headers"),
    (signed(replace(good(), key=b"x"), bytes(32)), "contradiction"),
    (signed(Gateway("gw-3").record(TIMED), bytes(32)), "mac"),  # a gateway without a key is nobody
]


@pytest.mark.guarantee(5)
@pytest.mark.parametrize("gateways_in_the_plan_max", [1, 10])
def test_a_record_is_of_the_gateway_whose_key_has_signed_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gateways_in_the_plan_max: int
) -> None:
    monkeypatch.setattr("cloud.stream.records._LOCAL_MAX", gateways_in_the_plan_max)
    read = read_records(topic(spark, [record for record, _ in SIGNED]), keys=key_frame(spark, KEYS, EVENTS))
    assert [row["reason"] for row in read.orderBy("kafka_offset").collect()] == [reason for _, reason in SIGNED]
    of_nobody = read_records(topic(spark, [SIGNED[0][0]]), keys=key_frame(spark, {}, EVENTS))
    assert of_nobody.collect()[0]["reason"] == "mac"
    file = tmp_path / "gateways.csv"
    file.touch(0o600)
    file.write_text("# keys\n" + "".join(f"{name},{key.hex()}\n" for name, found in KEYS.items() for key in found))
    gateways = GatewayFile(file, EVENTS)
    place = Appended(0, 0, now())
    for record, reason in SIGNED:
        judged = judge(record.key, record.value, record.headers, place, seen=SEEN, known={}, gateways=gateways)
        assert dict(zip(STAGED, judged.row, strict=True))["reason"] == reason


def with_value(record: Record, old: bytes, new: bytes) -> Record:
    assert old in record.value
    return replace(record, value=record.value.replace(old, new))


def with_fingerprint(record: Record, name: bytes) -> Record:
    return with_value(with_header(record, "ce_id", name), dict(record.headers)["ce_id"], name)


REASONS = {"ce_id": "fingerprint", "ce_time": "timestamps"}
"""Of a header that is missing."""
BAD: dict[str, tuple[Record, str]] = {
    "no headers": (replace(good(), headers=[]), "headers"),
    "other specversion": (with_header(good(), "ce_specversion", b"0.3"), "headers"),
    "foreign type": (with_header(good(), "ce_type", b"com.example"), "headers"),
    "upper-case fingerprint": (with_header(good(), "ce_id", b"A" * 32), "fingerprint"),
    "short fingerprint": (with_header(good(), "ce_id", b"ab"), "fingerprint"),
    "another's fingerprint": (with_header(good(), "ce_id", b"ab" * 16), "value"),
    "statement with a word less": (with_header(good(), STATEMENT, b"gw-1 00000000000000a1 1"), "headers"),
    "statement with a word between": (with_word(good(), SHARED, "time time"), "timestamps"),
    "gateway empty": (with_word(good(), GATEWAY, ""), "headers"),
    "gateway too long": (Gateway("g" * 128).record(TIMED), "headers"),
    "gateway with a control character": (Gateway("gw\x1b[2J").record(TIMED), "headers"),
    "device too long": (Gateway().record(replace(TIMED, device="d" * 4_097)), "headers"),
    "type too long": (Gateway().record(replace(TIMED, type="t" * 4_097)), "headers"),
    "line feed after the fingerprint": (with_fingerprint(good(), b"ab" * 16 + b"\n"), "fingerprint"),
    "line feed after the epoch": (with_word(good(), EPOCH, "0" * 16 + "\n"), "label"),
    "line feed after the sequence": (with_word(good(), SEQUENCE, "1\n"), "label"),
    "line feed after the bound": (with_word(good(), BOUND, "1\n"), "timestamps"),
    "sequence no number": (with_word(good(), SEQUENCE, "x"), "label"),
    "sequence below zero": (with_word(good(), SEQUENCE, "-1"), "label"),
    "sequence with a zero in front": (with_word(good(), SEQUENCE, "01"), "label"),
    "sequence too large": (with_word(good(), SEQUENCE, str(1 << 53)), "label"),
    "sequence beyond 64 bits": (with_word(good(), SEQUENCE, "9" * 19), "label"),
    "epoch not hex": (with_word(good(), EPOCH, "z" * 16), "label"),
    "bound no number": (with_word(good(), BOUND, "yesterday"), "timestamps"),
    "bound empty": (with_word(good(), BOUND, ""), "timestamps"),
    "acceptance unknown": (with_word(good(), RECEIVED, "-"), "timestamps"),
    "acceptance on the first day of all": (with_word(good(), RECEIVED, str(TIME_MIN - 1)), "timestamps"),
    "acceptance on the last day of all": (with_word(good(), RECEIVED, str(TIME_MAX + 1)), "timestamps"),
    "acceptance beyond 64 bits of microseconds": (with_word(good(), RECEIVED, "9" * 18), "timestamps"),
    "acceptance beyond 64 bits": (with_word(good(), RECEIVED, "9" * 19), "timestamps"),
    "time in the year 0": (with_header(good(), "ce_time", b"0000-01-01T00:00:00.000Z"), "timestamps"),
    "bound after 9999": (with_word(good(), BOUND, str(TIME_MAX + 1)), "timestamps"),
    "clock unheard of": (with_word(good(), CLOCK, "sundial"), "clock"),
    "shared unheard of": (with_word(good(), SHARED, "maybe"), "shared"),
    "value cut off": (replace(good(), value=good().value[:-2]), "value"),
    "value empty": (replace(good(), value=b""), "value"),
    "value not UTF-8": (with_value(good(), b'"t":20.5', b'"t":"\xff"'), "value"),
    "value too long": (Gateway().record(replace(TIMED, data={"t": "x" * (8 << 20)})), "value"),
    "another gateway": (with_word(good(), GATEWAY, "gw-2"), "contradiction"),
    "another epoch": (with_word(good(), EPOCH, "0" * 16), "contradiction"),
    "another sequence": (with_word(good(), SEQUENCE, "2"), "contradiction"),
    "another device": (replace(good(), key=b"urn:dev:mac:0000000000000002"), "contradiction"),
    "another type": (with_header(good(), "ce_type", b"oncegate.alarm"), "contradiction"),
    "another time in the header": (with_header(good(), "ce_time", b"2020-01-01T00:00:00.000Z"), "contradiction"),
    "another time in header and bound": (
        with_word(with_header(good(), "ce_time", b"2020-01-01T00:00:00.000Z"), BOUND, "1577836800000"),
        "contradiction",
    ),
    "another acceptance": (with_word(good(), RECEIVED, "1577836800000"), "contradiction"),
    "another time as the bound": (with_word(good(), BOUND, "0"), "contradiction"),
    "a time without its bound": (with_word(good(), BOUND, "-"), "contradiction"),
    "another device with a quote": (replace(good(), key=b'"'), "contradiction"),
    **{f"no {name}": (without_header(good(), name), REASONS.get(name, "headers")) for name in HEADERS},
}


@pytest.mark.guarantee(5)
def test_a_bound_that_is_not_the_events_own_saves_no_look_up(spark: SparkSession) -> None:
    """A record sent again with a later bound would be taken for fresh, and be in the table twice."""
    by_label = Gateway().record(replace(TIMED, id=None, time=None))
    rows = read_records(topic(spark, [by_label, with_word(by_label, BOUND, "0")])).orderBy("kafka_offset").collect()
    assert [(row["reason"], row["bound"] is None) for row in rows] == [(None, False), (None, True)]


@pytest.mark.guarantee(5)
def test_a_bad_record_has_a_reason_and_never_its_twins_key(spark: SparkSession) -> None:
    """Names that JSON escapes, and the largest of everything, are no fault."""
    odd = Gateway('gw-"1"\\').record(replace(TIMED, device=f'"north"\\{CONTROLS}é', type="a\n"))
    largest = Gateway("g" * 127, sequence=(1 << 53) - 2).record(replace(TIMED, device="😀" * 256, type="😀" * 64))
    big = Gateway().record(replace(TIMED, data={"t": "\x01" * (1 << 20)}))
    fine = [odd, largest, big, good()]
    records = [*fine, *(record for record, _ in BAD.values())]
    rows = read_records(topic(spark, records)).orderBy("kafka_offset").collect()
    assert [row["reason"] for row in rows[: len(fine)]] == [None] * len(fine)
    bad = rows[len(fine) :]
    assert {name: row["reason"] for name, row in zip(BAD, bad, strict=True)} == {
        name: reason for name, (_, reason) in BAD.items()
    }
    assert len({bytes(row["key"]) for row in rows}) == len(rows)
    assert all(row["value"] is not None and row["headers"] is not None for row in bad)


def test_a_null_value_is_a_reason(spark: SparkSession) -> None:
    frame = topic(spark, [good()]).selectExpr(
        "key", "cast(null as binary) as value", "partition", "offset", "timestamp", "headers"
    )
    assert read_records(frame).collect()[0]["reason"] == "value"


def test_a_newer_contract_and_another_retention_are_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lines, known = ProgressLines(Observer()), dict.fromkeys(("id", "runId"), str(UUID(int=0)))
    sink = {"description": "", "numOutputRows": 1}
    for number, newer in enumerate(("3 gw-2", "3 gw-1", None, "4 gw-1", "3 gw-2")):
        said = {OBSERVATION: {"newer": newer, "retention": newer and "60 gw-3", "unknown": 1}}
        batch = {
            "name": "",
            "timestamp": "",
            "batchId": number,
            "batchDuration": 1,
            "stateOperators": [],
            "sources": [],
        }
        rows = {"sink": sink, "numInputRows": 1, "processedRowsPerSecond": 1.0, "observedMetrics": said}
        lines.onQueryProgress(QueryProgressEvent.fromJson({"progress": {**known, **batch, **rows}}))
    warned = [one.getMessage().split()[:2] for one in caplog.records if one.levelname == "WARNING"]
    retention = ["gateway='gw-3'", "retention_seconds=60"]
    newest = ["gateway='gw-1'", "contract=4"]
    assert warned == [["gateway='gw-2'", "contract=3"], retention, ["batch=0", "unknown=1"], newest]
