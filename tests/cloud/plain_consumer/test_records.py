"""The judgement in Python is that in Spark, for records of any content."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import cast

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cloud.plain_consumer.records import Appended, judge
from cloud.postgres.copy_format import staged
from cloud.stream.records import read_records
from cloud.table.layout import STAGED
from contract.event import Event
from contract.fields import OBJECTS
from tests.cloud.gateway import Gateway, Record
from tests.cloud.tables import ACCEPTED, topic
from tests.cloud.test_any_records import CHANGES, readings, statements

pytestmark = pytest.mark.spark

SEEN = datetime(2026, 1, 1, tzinfo=UTC)
APART = (b"NaN", b"'a'", b":01", b"[" * 3000, b'{"a":' * 2000, b"k" * 60_000, b'{"a":1}}}')
"""What Spark reads as JSON, and Python does not, or the other way round."""


@pytest.mark.guarantee(5)
@pytest.mark.heavy
@settings(max_examples=2, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.tuples(readings() | statements(), st.lists(CHANGES, max_size=2)), min_size=30, max_size=60),
    st.sampled_from([0, 86_400_000 * 400, -86_400_000 * 3]),
)
def test_it_judges_and_decodes_as_the_job_does(
    spark: SparkSession, drawn: list[tuple[Event, list[Callable[[Record], Record]]]], apart: int
) -> None:
    gateway, records = Gateway(), []
    for event, changes in drawn:
        record = gateway.record(event, ACCEPTED)
        for change in changes:
            record = change(record)
        records.append(record)
    appended = ACCEPTED + apart
    frame = staged(read_records(topic(spark, records, appended)).withColumn("fresh", F.lit(None).cast("boolean")), None)
    theirs = [row.asDict() for row in frame.orderBy("kafka_offset").collect()]
    own = [dict(zip(STAGED, judge_one(*one, appended), strict=True)) for one in enumerate(records)]
    rows = [(mine, other) for mine, other in zip(own, theirs, strict=True) if not is_read_by_one(mine, other)]
    pairs = [(comparable(mine), comparable(other)) for mine, other in rows]
    assert [differing for one, other in pairs if (differing := difference(one, other))] == []


def difference(mine: dict[str, object], other: dict[str, object]) -> list[tuple[str, object, object]]:
    names = mine.keys() | other.keys()
    return [(name, mine.get(name), other.get(name)) for name in sorted(names) if mine.get(name) != other.get(name)]


def is_read_by_one(mine: dict[str, object], other: dict[str, object]) -> bool:
    """Whether Python rejects what Spark reads, or the other way round: where the name or type has an escape."""
    return is_apart(mine["value"]) and (mine["reason"] is None) != (other["reason"] is None)


def is_apart(value: object) -> bool:
    return value is not None and any(form in bytes(cast("bytes", value)) for form in APART)


def judge_one(offset: int, record: Record, appended: int) -> tuple[object, ...]:
    return judge(record.key, record.value, record.headers, Appended(0, offset, appended), seen=SEEN, known={}).row


def comparable(row: dict[str, object]) -> dict[str, object]:
    """Return what both must say the same of a record."""
    if row["reason"] is not None:
        names = ("reason", "kafka_key", "value", "headers", "kafka_offset")
        return {name: row[name] for name in names}
    shown = {name: plain(value) for name, value in row.items() if name not in ("processed_at", "fresh")}
    if is_apart(shown["value"]):
        return {name: shown[name] for name in ("fingerprint", "device", "type", "received", "day")}
    for name in OBJECTS:
        shown[name] = loaded(shown[name])
    return shown


def plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC)
    return bytes(value) if isinstance(value, bytearray) else value


def loaded(text: object) -> object:
    try:
        return json.loads(str(text))
    except (ValueError, RecursionError):
        return text
