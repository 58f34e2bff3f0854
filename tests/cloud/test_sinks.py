"""What each of the job's sinks promises, whatever makes its batches."""

from dataclasses import replace

import pytest

from cloud.errors import StopError
from cloud.stream.records import read_records
from cloud.table.commits import CLAIM_ONLY
from cloud.table.sink import Written
from tests.cloud.gateway import Gateway, Record
from tests.cloud.tables import ACCEPTED, ALL_LATE, COMMIT, DAY, SinkSide, counters, topic

pytestmark = [pytest.mark.spark, pytest.mark.guarantee(5)]


def quarantined(side: SinkSide) -> list[tuple[int, str, bytes]]:
    found = side.table().quarantined()
    return sorted((row["kafka_offset"], row["reason"], bytes(row["value"])) for row in found)


def test_a_batch_is_rows_quarantine_and_offsets_at_once(sink_side: SinkSide) -> None:
    good = Gateway().records(counters(1, 2, 3), ACCEPTED)
    bad = replace(good[0], headers=[("x", b"\x00")])
    assert sink_side.write([*good, bad]) == Written(rows=3, late=3, bad=1, found=0)
    assert sink_side.write(good[:2]) == Written(rows=0, late=2, bad=0, found=2)
    rows = sorted(sink_side.table().rows(), key=lambda row: str(row["id"]))
    assert [(row["id"], row["data"], bytes(row["fingerprint"]).hex()) for row in rows] == [
        (str(number), f'{{"n":{number}}}', dict(record.headers)["ce_id"].decode())
        for number, record in zip((1, 2, 3), good, strict=True)
    ]
    assert quarantined(sink_side) == [(3, "headers", bad.value)]
    last = sink_side.sink.last_commit()
    assert (last.batch, last.ends) == (2, COMMIT.ends)


@pytest.mark.heavy
def test_the_older_claim_commits_nothing_and_the_younger_one_has_the_new_rows_under_their_key(
    sink_side: SinkSide,
) -> None:
    sink_side.write(Gateway().records(counters(1), ACCEPTED))
    key = sink_side.sink.new_rows().key
    younger, claim = sink_side.open(), replace(COMMIT, claim=2, batch=CLAIM_ONLY, checkpoint="younger")
    younger.claim(claim)
    assert younger.new_rows().key == key
    read = read_records(topic(sink_side.spark, Gateway().records(counters(2))))
    with pytest.raises(StopError, match="another job has claimed it"):
        sink_side.sink.write(read, replace(COMMIT, batch=1 << 30), ALL_LATE)
    assert ([row["id"] for row in sink_side.table().rows()], sink_side.open().last_commit()) == (["1"], claim)


@pytest.mark.heavy
def test_another_record_at_the_place_of_one_in_quarantine_is_quarantined_too(sink_side: SinkSide) -> None:
    """A truncated log that has grown again has other records at the same offsets, under the same topic id."""
    for record in (Record(b"k", b"dead", []), Record(b"k", b"live", []), Record(b"k", b"live", [])):
        sink_side.write([record])
    assert quarantined(sink_side) == [(0, "headers", b"dead"), (0, "headers", b"live")]


@pytest.mark.heavy
def test_a_counter_that_wrapped_is_quarantined_and_a_copy_is_not(sink_side: SinkSide, gateway: Gateway) -> None:
    sink_side.write(gateway.records(counters(1, 2), ACCEPTED))
    again = [
        gateway.record(counters(1)[0], ACCEPTED + 8 * DAY),  # wrapped
        gateway.record(counters(2)[0], ACCEPTED + 6 * DAY),  # within the retention: a resend
        gateway.record(counters(3)[0], ACCEPTED + 9 * DAY),  # wrapped within this batch: the first accepted stays
        gateway.record(counters(3)[0], ACCEPTED),
    ]
    assert sink_side.write(again) == Written(rows=1, late=4, bad=2, found=1)
    assert [(offset, reason) for offset, reason, _ in quarantined(sink_side)] == [(0, "id_reused"), (2, "id_reused")]
    rows = sorted((row["id"], row["sequence"]) for row in sink_side.table().rows())
    assert rows == [("1", 1), ("2", 2), ("3", 6)]
