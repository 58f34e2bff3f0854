"""The account of an audit, by example and as properties; and the whole audit on a real topic."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cloud.audit import audit
from cloud.auditing import account, forgery, report, sections
from cloud.auditing.findings import Findings
from cloud.auditing.settings import parse
from cloud.auditing.topic import read
from cloud.delta.sink import QUARANTINE, TABLE
from cloud.delta.table import DeltaTable
from cloud.settings import KafkaSettings
from cloud.stream.kafka_admin import KafkaAdmin
from cloud.stream.records import read_records
from cloud.table.rows import decode
from contract.event import Event, Label, gateway_device
from contract.fingerprint import IDENTITY_FIELDS, fingerprint, needs_label
from contract.mac import KEY_BYTES
from contract.receipt import Receipt
from simulators.services.kafka.broker import Broker
from tests.cloud.auditing.chains import chain
from tests.cloud.gateway import Gateway, Record, readings, send, signed, with_header, with_word
from tests.cloud.tables import topic as topic_of
from tests.contract.strategies import events as drawn_events

pytestmark = pytest.mark.spark

G, E = "gw-1", "00000000000000a1"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
RANGE = "gateway string, epoch string, status string, first bigint, last bigint, since timestamp"
ENDED = "gateway string, epoch string, ends bigint, followers bigint, since timestamp"


def parts(spark: SparkSession, *ranges: tuple[str, int, int]) -> DataFrame:
    return spark.createDataFrame([(G, E, status, first, last, NOON) for status, first, last in ranges], RANGE)


def ended(spark: SparkSession, *endings: tuple[int, int]) -> DataFrame:
    return spark.createDataFrame([(G, E, end, followers, NOON) for end, followers in endings], ENDED)


def spans(frame: DataFrame) -> list[tuple[int, int]]:
    return sorted((row["first"], row["last"]) for row in frame.collect())


@pytest.mark.heavy
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 6)), min_size=1, max_size=12), st.integers(0, 50))
def test_ranges_and_holes_are_the_labels_and_the_others(
    spark: SparkSession, drawn: list[tuple[int, int]], end: int
) -> None:
    labels = {number for first, more in drawn for number in range(first, first + more + 1)}
    given_ = parts(spark, *(("accepted", first, first + more) for first, more in drawn))
    long = account.merged(given_)
    assert {number for first, last in spans(long) for number in range(first, last + 1)} == labels
    assert all(first - 1 not in labels and last + 1 not in labels for first, last in spans(long))
    holes = spans(account.holes(long, ended(spark, (end, 1))))
    wanted = set(range(1, max(*labels, end) + 1)) - labels
    assert {number for first, last in holes for number in range(first, last + 1)} == wanted


def test_an_epoch_is_open_complete_or_forked(spark: SparkSession) -> None:
    cases: list[tuple[list[tuple[str, int, int]], list[tuple[int, int]], str]] = [
        ([("accepted", 1, 9)], [], "open"),
        ([("accepted", 1, 9)], [(9, 1)], "complete"),
        ([("accepted", 1, 9), ("missing", 10, 11)], [(11, 1)], "open"),
        ([("accepted", 1, 9)], [(7, 1)], "forked"),
        ([("accepted", 1, 9)], [(9, 2)], "forked"),
    ]
    ranges = [(G, str(epoch), *one, NOON) for epoch, (given_, _, _) in enumerate(cases) for one in given_]
    endings = [(G, str(epoch), *one, NOON) for epoch, (_, given_, _) in enumerate(cases) for one in given_]
    found = account.states(spark.createDataFrame(ranges, RANGE), spark.createDataFrame(endings, ENDED)).collect()
    assert {int(row["epoch"]): row["state"] for row in found} == {n: state for n, (*_, state) in enumerate(cases)}


def test_two_lanes_of_a_gateway_are_no_fork_and_each_ends_where_its_own_successor_states(spark: SparkSession) -> None:
    """Each lane of a gateway has epochs of its own, so that two are open at once and two have ended."""
    before, after = (("default", 9), ("alarms", 4)), ("default-2", "alarms-2")
    starts = [
        (G, follower, "gateway.started", f'{{"previous_epoch":"{epoch}","previous_sequence":{end}}}', NOON)
        for (epoch, end), follower in zip(before, after, strict=True)
    ]
    stated = account.endings(
        spark.createDataFrame(starts, "gateway string, epoch string, type string, data string, appended timestamp")
    )
    labels = [(G, epoch, "accepted", 1, end, NOON) for epoch, end in (*before, ("default-2", 3), ("alarms-2", 1))]
    labelled = spark.createDataFrame(labels, RANGE)
    assert account.holes(labelled, stated).count() == 0
    states = {row["epoch"]: row["state"] for row in account.states(labelled, stated).collect()}
    assert states == {"default": "complete", "alarms": "complete", "default-2": "open", "alarms-2": "open"}


def test_a_hole_is_pending_until_what_follows_it_is_old(spark: SparkSession) -> None:
    open_ = account.holes(parts(spark, ("accepted", 1, 2), ("accepted", 5, 9)), ended(spark))
    for seconds, status in ((3599, account.PENDING), (3600, account.MISSING)):
        now = F.timestamp_seconds(F.lit(int(NOON.timestamp()) + seconds))
        [row] = account.overdue(open_, now, 3600).collect()
        assert (row["first"], row["last"], row["status"]) == (3, 4, status)


@pytest.mark.guarantee(5)
def test_what_no_gateway_states_is_left_out_and_blinds_no_audit(spark: SparkSession) -> None:
    """One such row would fail this and each later audit, since their sums and differences overflow."""
    most = (1 << 63) - 1
    stated = {
        "gateway.started": {"previous_epoch": E, "previous_sequence": most, "previous_first": 1, "previous_digest": ""},
        "gateway.checkpoint": {"first": -most, "last": most, "digest": ""},
        "gateway.gap": {"labels": [[E, 1, most], [E, -most, 5], [E, 7, 6], [E, "many", 9]]},
    }
    rows = [(G, "next", kind, json.dumps(data), NOON) for kind, data in stated.items()]
    events = spark.createDataFrame(rows, "gateway string, epoch string, type string, data string, appended timestamp")
    for states in (sections.stated, account.declared, account.endings):
        assert states(events).count() == 0
    labels = [(G, E, "accepted", sequence, NOON) for sequence in (1, most, -1)]
    named = "gateway string, epoch string, status string, sequence bigint, since timestamp"
    assert spans(account.ranges(spark.createDataFrame(labels, named))) == [(1, 1)]
    label = with_word(with_word(Gateway().record(readings(1)[0]), 2, str(most)), 0, G)
    assert read(topic_of(spark, [label])).collect()[0]["sequence"] is None


@pytest.mark.guarantee(5)
def test_rows_that_the_job_is_just_writing_do_not_take_the_places_of_vanished_ones(spark: SparkSession) -> None:
    there = [(G, E, sequence, 0, sequence - 1) for sequence in (1, 2, 4, 5, 6, 7)]  # 6 and 7 have no receipt yet
    places = "gateway string, epoch string, sequence bigint, kafka_partition int, kafka_offset bigint"
    rows = spark.createDataFrame(there, places)
    for partition in (0, 1):  # of the other one nothing is receipted
        assert spans(account.vanished(parts(spark, ("accepted", 1, 5)), rows, {0: 5, partition: 5})) == [(3, 3)]


@pytest.mark.guarantee(8)
def test_rows_of_no_record_are_unaccounted_for_and_only_those(spark: SparkSession) -> None:
    places = "gateway string, epoch string, sequence bigint, kafka_partition int, kafka_offset bigint"
    true = [(G, E, sequence, 0, sequence - 1) for sequence in range(1, 6)]
    false = [(G, E, 9, 0, 2), ("x", E, 1, 0, 3), (None, None, None, 7, None)]
    covered = parts(spark, ("accepted", 1, 5), ("duplicate", 9, 9))
    assert account.unaccounted(covered, spark.createDataFrame(true, places)).isEmpty()
    found = account.unaccounted(covered, spark.createDataFrame(true + false, places)).collect()
    assert {(row["gateway"], row["sequence"], row["status"]) for row in found} == {
        (G, 9, "unaccounted"),
        ("x", 1, "unaccounted"),
        ("", -1, "unaccounted"),
    }


class Side:
    """A topic, a table with the rows of the test, receipts for all, and an audit."""

    def __init__(self, spark: SparkSession, broker: Broker, folder: Path, topic: str) -> None:
        self.spark = spark
        self.servers = broker.bootstrap_servers
        self.folder = folder
        self.topic = topic
        self.sent = 0
        broker.create_topics(topic, partitions=1)
        self.table = DeltaTable(spark, f"{folder}/events", TABLE)
        self.quarantine = DeltaTable(spark, f"{folder}/events_quarantine", QUARANTINE)
        self.admin = KafkaAdmin(spark, KafkaSettings(self.servers, topic, "g", 1, {}))

    def send(self, records: Sequence[Record], *, leave_out: Sequence[int] = (), duplicates: Sequence[int] = ()) -> None:
        """Send, and write to the table those that are neither left out nor duplicates, by their place."""
        send(self.servers, self.topic, records, 0)
        read = read_records(topic_of(self.spark, records))
        not_written = list(leave_out) + list(duplicates)
        rows = decode(read.filter(~F.col("kafka_offset").isin(not_written) & F.col("reason").isNull()))
        rows = rows.withColumn("kafka_offset", F.col("kafka_offset") + self.sent)
        rows.write.format("delta").mode("append").save(f"{self.folder}/events")
        bad = read.filter(F.col("reason").isNotNull()).select(
            F.lit(self.admin.topic_id()).alias("topic_id"),
            F.lit(self.topic).alias("topic"),
            "kafka_partition",
            (F.col("kafka_offset") + self.sent).alias("kafka_offset"),
            "value",
        )
        bad.write.format("delta").mode("append").save(f"{self.folder}/events_quarantine")
        self.sent += len(records)
        self.admin.commit("g", {0: self.sent}, {0: str(Receipt(self.table.id, 0, self.admin.topic_id()))}, {0: 0})

    def write(self, records: Sequence[Record], first: int) -> None:
        """Write rows to the table, of records from an offset on."""
        rows = decode(read_records(topic_of(self.spark, records, first=first)))
        rows.write.format("delta").mode("append").save(f"{self.folder}/events")

    def audit(self, *options: str) -> Findings:
        ends = ("--bootstrap-servers", self.servers, "--topic", self.topic, "--group", "g")
        folders = ("--table", f"{self.folder}/events", "--output", f"{self.folder}/audit")
        try:
            return audit(self.spark, parse([*ends, *folders, "--grace", "0s", *options]))
        finally:  # the program ends instead; here, the plans of many audits would fill the heap
            self.spark.catalog.clearCache()

    def ranges(self) -> list[tuple[str, str, int, int]]:
        rows = self.spark.read.format("delta").load(f"{self.folder}/audit/audit_ranges").collect()
        return sorted((row["epoch"], row["status"], row["first"], row["last"]) for row in rows)


@pytest.fixture
def side(spark: SparkSession, broker: Broker, tmp_path: Path) -> Side:
    return Side(spark, broker, tmp_path, f"audit.{uuid4().hex}")


@pytest.mark.guarantee(5)
@pytest.mark.heavy
@pytest.mark.kafka
def test_every_label_has_an_account_from_audit_to_audit(side: Side) -> None:
    gateway, other = Gateway(), Gateway("gw-2", "00000000000000b2")
    events = readings(10)
    first = gateway.records(events)
    duplicate = other.record(events[3])
    side.send([*first, duplicate, Record(b"k", b"v", [])], duplicates=[10])
    whole = side.audit()
    assert whole.is_whole
    assert whole.counts == {"accepted": 10, "duplicate": 1}
    assert side.ranges() == [(E, "accepted", 1, 10), (other.epoch, "duplicate", 1, 1)]
    [dropped] = side.spark.read.format("delta").load(f"{side.folder}/audit/audit_duplicates").collect()
    assert (dropped["gateway"], dropped["sequence"], dropped["of_gateway"], dropped["of_sequence"]) == ("gw-2", 1, G, 4)

    # A record is receipted and in no table; a label never arrived; another was declared as a gap.
    more = gateway.records(readings(5, start=10))  # 11 to 15
    gap = Event(gateway_device(G), "gateway.gap", "x", data={"labels": [[E, 12, 12]], "count": 1, "reason": "damage"})
    side.send([more[0], more[3], more[4], gateway.record(gap)], leave_out=[1])
    broken = side.audit()
    assert not broken.is_whole
    assert [(one.kafka_offset, one.gateway, one.sequence) for one in broken.unwritten] == [(13, G, 14)]
    assert {(one.status, one.first) for one in broken.wrong} == {("unwritten", 14), ("missing", 13)}
    assert broken.subject.span.offsets == 4
    assert (broken.subject.series.number, broken.subject.series.since) == (2, whole.subject.series.since)
    assert f"unwritten: partition 0 offset 13 fingerprint {dict(more[3].headers)['ce_id'].decode()}" in "\n".join(
        report.lines(broken)
    )
    page = report.page(broken)
    assert "Not whole: 2 labels missing, 1 record unwritten." in page

    # Both arrive later, and the next epoch states where this one ended.
    started = Event(gateway_device(G), "gateway.started", "e", data={"previous_epoch": E, "previous_sequence": 16})
    side.send([more[2], more[3], Gateway(G, "00000000000000a2").record(started)])
    healed = side.audit()
    assert healed.is_whole
    assert {one.epoch: one.state for one in healed.epochs}[E] == "complete"


@pytest.mark.guarantee(5)
@pytest.mark.heavy
@pytest.mark.kafka
def test_one_label_with_two_fingerprints_and_a_doubled_event_are_flagged_from_audit_to_audit(side: Side) -> None:
    events = readings(3)
    side.send(Gateway().records(events[:2]))
    assert side.audit().is_whole
    side.send([Gateway().record(events[2])])  # sequence 1 again, of another event
    side.send([Gateway("gw-2", "00000000000000b2").record(events[0])])  # a second row of the first
    mark = dict(Gateway().record(events[0]).headers)["ce_id"].decode()
    for _ in range(2):
        found = side.audit()
        assert (found.counts["ambiguous"], found.doubled, found.is_whole) == (1, [mark], False)
        assert [one.kafka_offset for one in found.records if one.status == "doubled"] == [0, 3]


@pytest.mark.guarantee(5)
@pytest.mark.heavy
@pytest.mark.kafka
def test_rows_that_vanish_after_an_audit_has_accepted_them_are_named_from_audit_to_audit(side: Side) -> None:
    gateway, other = Gateway(), Gateway("gw-2", "00000000000000b2")
    sent = [*gateway.records(readings(10)), *other.records(readings(3, start=100))]
    side.send(sent)
    assert side.audit().is_whole
    table = f"delta.`{side.folder}/events`"
    side.spark.sql(f"DELETE FROM {table} WHERE gateway = 'gw-1' AND sequence IN (3, 4, 9)")
    side.send(gateway.records(readings(2, start=10)))
    for _ in range(2):
        found = side.audit()
        assert not found.is_whole
        assert found.counts == {"accepted": 12, "vanished": 3}
        assert [(one.status, one.first, one.last) for one in found.wrong] == [("vanished", 3, 4), ("vanished", 9, 9)]
        assert "Not whole: 3 labels missing." in report.page(found)
        marks = [dict(sent[number].headers)["ce_id"].decode() for number in (2, 3, 8)]
        assert [(one.kafka_offset, one.fingerprint) for one in found.records] == list(
            zip((2, 3, 8), marks, strict=True)
        )
    side.spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF 1")
    side.spark.sql(f"DELETE FROM {table} WHERE gateway = 'gw-2'")
    assert side.audit().counts == {"accepted": 10, "vanished": 5}


@pytest.mark.guarantee(5)
@pytest.mark.heavy
@pytest.mark.kafka
def test_a_record_whose_event_the_table_gets_later_is_no_longer_unwritten(side: Side, broker: Broker) -> None:
    """The job reads the topic again; meanwhile somebody adds a partition, of which there is no receipt."""
    events = readings(3)
    records = [*Gateway().records(events), Gateway("gw-2", "00000000000000b2").record(events[1])]
    side.send([*records, Record(b"k", b"no label", [])], leave_out=[1, 3])
    side.spark.sql(f"DELETE FROM delta.`{side.folder}/events_quarantine`")
    found = side.audit()
    assert found.counts == {"accepted": 2, "unwritten": 2}
    assert [one.kafka_offset for one in found.unwritten] == [1, 3, 4]
    side.write(records[1:2], first=1)
    client = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    client.create_partitions([NewPartitions(side.topic, 2)])[side.topic].result(60)
    found = side.audit()
    assert found.counts == {"accepted": 3, "duplicate": 1}
    assert [one.kafka_offset for one in found.unwritten] == [4]


@pytest.mark.guarantee(5)
@pytest.mark.heavy
@pytest.mark.kafka
def test_a_record_is_not_in_quarantine_because_another_once_stood_at_its_place(side: Side) -> None:
    foreign = [Record(b"k", value, []) for value in (b"live", b"kept", b"of this topic")]
    side.send([*Gateway().records(readings(1)), *foreign])
    there = f"delta.`{side.folder}/events_quarantine`"
    side.spark.sql(f"UPDATE {there} SET value = cast('dead' AS binary) WHERE kafka_offset = 1")
    side.spark.sql(f"UPDATE {there} SET topic_id = 'another' WHERE kafka_offset = 3")
    assert [one.kafka_offset for one in side.audit().unwritten] == [1, 3]


@pytest.mark.guarantee(8)
@pytest.mark.heavy
@pytest.mark.kafka
def test_a_row_under_a_label_that_no_record_has_is_named_before_any_digest_is_stated(side: Side) -> None:
    gateway = Gateway()
    side.send(gateway.records(readings(10)))
    assert side.audit().is_whole
    side.send(gateway.records(readings(5, start=10)))
    table = f"delta.`{side.folder}/events`"
    side.spark.sql(f"""UPDATE {table} SET gateway = 'x', sequence = 1, data = '{{"t":99}}' WHERE sequence = 12""")
    made_up = (
        "* EXCEPT (epoch, kafka_offset, fingerprint), 'b' AS epoch, 99 AS kafka_offset, unhex('00') AS fingerprint"
    )
    side.spark.sql(f"INSERT INTO {table} BY NAME SELECT {made_up} FROM {table} WHERE sequence = 2")
    unread = gateway.records(readings(2, start=20))
    send(side.servers, side.topic, unread, 0)
    side.write(unread, first=15)  # a job that runs
    for _ in range(2):
        found = side.audit()
        assert found.faults()["row unaccounted for"] == 2
        named = sorted((one.status, one.gateway, one.epoch, one.sequence) for one in found.records)
        assert named == [("unaccounted", G, "b", 2), ("unaccounted", "x", E, 1)]


@pytest.mark.guarantee(8)
@pytest.mark.heavy
@pytest.mark.kafka
def test_what_a_gateway_has_signed_shows_a_table_whose_statements_were_changed_with_its_rows(side: Side) -> None:
    """Also after the key was replaced, and the topic has lost the records: an audit has read them before."""
    key, file = bytes([1]) * KEY_BYTES, side.folder / "gateways.csv"
    side.send([signed(record, key, side.topic) for record in chain(14, 4)])
    for number, named in enumerate((key, bytes(KEY_BYTES))):
        file.write_text(f"gw-1,{named.hex()}\n")
        file.chmod(0o600)
        found = side.audit("--gateways", str(file)).sections
        status = sections.DIFFERS if number else sections.VERIFIED
        assert found[status][0] == 3
        side.spark.sql(f"DELETE FROM delta.`{side.folder}/events`")
        side.write(chain(14, 4, celsius=20.6), first=0)
    assert side.audit("--output", f"{side.folder}/other").sections[sections.VERIFIED][0] == 3
    unsigned = side.audit("--output", f"{side.folder}/other", "--gateways", str(file)).sections
    assert unsigned.keys() == {sections.UNKNOWN, sections.UNSTATED}
    assert unsigned[sections.UNKNOWN][0] == 3


@pytest.mark.guarantee(5)
@pytest.mark.kafka
@pytest.mark.heavy
def test_rows_with_the_fingerprint_of_other_content_are_named_with_the_event_that_was_dropped(side: Side) -> None:
    """Whoever may write to the topic has guessed the next event, and said something else under its fingerprint."""
    event, other = readings(2)
    true, harmless = Gateway().records([event, other])
    name = dict(true.headers)["ce_id"]

    def lie(gateway: str, epoch: str, name: bytes) -> Record:
        own = Gateway(gateway, epoch).record(replace(event, data={"t": 99}))
        return with_header(replace(own, value=own.value.replace(dict(own.headers)["ce_id"], name)), "ce_id", name)

    duplicate = Gateway("gw-3", "00000000000000c3").record(other)
    attempt = replace(duplicate, value=duplicate.value.replace(b'{"t":21.5}', b'{"t":0}'))
    assert attempt != duplicate
    alone = lie("gw-4", "00000000000000d4", b"f" * 32)
    side.send([lie("gw-2", "00000000000000b2", name), true, harmless, duplicate, attempt, alone], duplicates=[1, 3, 4])
    for options in ((), ("--verify", "0.5")):  # of no new record: what was found once remains
        found = side.audit("--verify", "1") if not options else side.audit(*options)
        named = {(one.status, one.fingerprint, one.gateway) for one in found.records}
        hexed = name.decode()
        assert {("conflict", hexed, G), ("forged", hexed, "gw-2"), ("forged", "f" * 32, "gw-4")} == named
        assert not found.is_whole
        told = "\n".join(report.lines(found))
        assert "conflict: partition 0 offset 1" in told
        assert "1 event in conflict, 2 rows forged" in told
    side.spark.sql(f"DELETE FROM delta.`{side.folder}/events` WHERE gateway IN ('gw-2', 'gw-4')")
    side.write([true], first=1)
    assert not {one.status for one in side.audit().records} & {"conflict", "forged"}


@pytest.mark.guarantee(2)
@given(st.lists(drawn_events, min_size=1, max_size=9), st.data())
def test_a_value_has_its_fingerprint_by_any_rule_and_no_other(drawn: list[Event], data: st.DataObject) -> None:
    for event, record in zip(drawn, Gateway().records(drawn), strict=True):
        name = dict(record.headers)["ce_id"].decode()
        assert forgery.verify(record.value, name) == "verified", event
        assert forgery.verify(record.value, f"{int(name, 16) ^ 1:032x}") == "forged"
        fields = ("device", *sorted(data.draw(st.sets(st.sampled_from(IDENTITY_FIELDS[1:])))))
        said = json.loads(record.value)
        label = Label(said["epoch"], said["sequence"])
        by_rule = fingerprint(event, fields, label if needs_label(event, fields) else None)
        assert forgery.verify(record.value, by_rule.hex()) == "verified"
    for unread in (b"[" * 100_000, b"", b"{}", b"[]", b'{"device":1}'):
        assert forgery.verify(unread, "") == "unverifiable"
