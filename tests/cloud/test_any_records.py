"""Whatever a writer sends to the topic, job and audit go on, and the table's readers have their answers."""

import io
import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from pkgutil import resolve_name
from uuid import uuid4

import duckdb
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cloud import query
from cloud.auditing import account, forgery, report, sections
from cloud.auditing.findings import Named, find, to_locate
from cloud.auditing.settings import parse
from cloud.auditing.store import TopicSpan
from cloud.auditing.table import TableView, read_table
from cloud.auditing.topic import read
from cloud.postgres.sink import PostgresSink
from cloud.stream.records import read_records
from cloud.table.commits import CLAIM_ONLY
from cloud.table.devices import Devices
from contract.event import TIME_MAX, TIME_MIN, Event, gateway_device
from contract.record import STATEMENT
from simulators.services.postgres import Postgres
from tests.cloud.auditing.found import SUBJECT
from tests.cloud.gateway import Gateway, Record, with_header
from tests.cloud.tables import ACCEPTED, ALL_LATE, COMMIT, DEVICE, sink_of, topic
from tests.cloud.test_queries import VIEWS

pytestmark = pytest.mark.spark

G, EPOCH = "gw-1", "00000000000000a1"
BIG = (1 << 63) - 1
_NUMBERS = (0, 1, -1, 5_000, 1 << 53, -(1 << 53), BIG, -BIG, (1 << 64) - 1, 1e30, "many", None, [1])
NUMBERS = st.sampled_from(_NUMBERS)
FIELDS = (
    "first",
    "last",
    "previous_first",
    "previous_sequence",
    "new_events",
    "written_bytes",
    "count",
    "correction_ms",
)
TYPES = ("gateway.started", "gateway.checkpoint", "gateway.gap", "gateway.clock", "gateway.x")
TEXTS = st.text(max_size=9) | st.sampled_from(["\x00", "a\n", '"', "\\", "\u202e\x1b[2J", "😀" * 40, "g" * 12_000])
WORDS = st.one_of(
    st.binary(max_size=9),
    st.sampled_from([b"", b"-", b"1\n", b"0" * 16, b"0" * 17, b"trusted", b"time", b"\xff\xfe", b"g" * 12_000]),
    st.integers(-(1 << 65), 1 << 65).map(lambda number: b"%d" % number),
    st.sampled_from(
        [
            b"9223372036854775807",
            b"9007199254740992",
            *(b"%d" % time for time in (TIME_MIN - 1, TIME_MIN, TIME_MAX, TIME_MAX + 1)),
        ]
    ),
)
DATA = (
    *(b"{}", b"5", b"null", b'"x"', b"[]", b'{"a":NaN}', b"{'a':1}", b'{"a":"\\u0000"}', b'{"a":"\\ud800"}'),
    *(b'{"a":1e999999}', b'{"a":01}', b'{"a":1},"x":{"b":2}', b'{"a":1}}', b'{"a":1,"a":2}', b'{"a":{"b":[1,{}]}}'),
    *(b"[" * 3000, b'{"a":' * 2000 + b"1" + b"}" * 2000, b'{"' + b"k" * 60_000 + b'":1}', b'{"a":\xff}', b'{"a":-}'),
    *(b'{"a":1},"units":[1]', b'{"a":1},"units":{"a":"\\ud800"}', b'{"a":1},"units":5', b'{"a":1},"time":1e9'),
    b'{"a":1},"possible_duplicate_of":"xyz"',
)


def statements() -> st.SearchStrategy[Event]:
    """Return events of a gateway about itself, with any numbers."""
    numbers = st.fixed_dictionaries(dict.fromkeys(FIELDS, NUMBERS))
    texts = st.fixed_dictionaries({"epoch": st.just(EPOCH), "previous_epoch": st.just(EPOCH), "digest": TEXTS})
    labels = st.lists(st.tuples(st.just(EPOCH), NUMBERS, NUMBERS).map(list), max_size=2)
    types = st.sampled_from(TYPES)
    return st.builds(
        lambda kind, one, two, gaps, id_: Event(gateway_device(G), kind, id=id_, data={**one, **two, "labels": gaps}),
        *(types, numbers, texts, labels, st.integers(0, 1 << 40)),
    )


def readings() -> st.SearchStrategy[Event]:
    times = st.none() | st.sampled_from([ACCEPTED, ACCEPTED + 1])
    data = st.dictionaries(TEXTS, st.none() | st.booleans() | st.integers(-BIG, BIG) | TEXTS, max_size=3)
    return st.builds(
        lambda device, id_, time, told: Event(device, "reading", id=id_, time=time, data=told),
        *(TEXTS.filter(bool), st.none() | st.integers(0, 9) | TEXTS, times, data),
    )


def with_any_word(record: Record, place: int, word: bytes) -> Record:
    words = dict(record.headers)[STATEMENT].split(b" ")
    words[place % len(words)] = word
    return with_header(record, STATEMENT, b" ".join(words))


def with_data(record: Record, text: bytes) -> Record:
    return replace(record, value=re.sub(rb'"data":\{.*\}', lambda _: b'"data":' + text + b"}", record.value))


CHANGES: st.SearchStrategy[Callable[[Record], Record]] = st.one_of(
    st.just(lambda record: record),
    st.builds(lambda place, word: lambda record: with_any_word(record, place, word), st.integers(0, 6), WORDS),
    st.builds(lambda text: lambda record: with_data(record, text), st.sampled_from(DATA)),
    st.builds(
        lambda name, value: lambda record: with_header(record, name, value),
        *(st.sampled_from(["ce_type", "ce_id", "ce_time", "ce_source", "ce_specversion"]), WORDS),
    ),
    st.builds(lambda key: lambda record: replace(record, key=key), WORDS),
    st.builds(
        lambda at, more: lambda record: replace(record, value=record.value[:at] + more + record.value[at:]),
        *(st.integers(0, 300), st.binary(max_size=4)),
    ),
    st.builds(
        lambda old, new: lambda record: replace(record, value=record.value.replace(old, new)),
        *(st.sampled_from([b'"via":"coap"', b'"received":', b'"device":']), st.binary(max_size=9)),
    ),
    st.just(lambda record: replace(record, value=record.value.replace(b'"via":"coap"', b'"via":"gateway"'))),
    st.just(lambda record: replace(record, headers=[*record.headers, *record.headers])),
    st.just(lambda record: replace(record, value=b"", headers=[(STATEMENT, b"")])),
)


@st.composite
def records(draw: st.DrawFn) -> Record:
    gateway = Gateway(draw(st.just(G) | TEXTS), EPOCH, draw(st.sampled_from([0, 1, 2, (1 << 53) - 2])))
    record = gateway.record(draw(statements() | readings()), draw(st.sampled_from([ACCEPTED, TIME_MIN])))
    return draw(CHANGES)(draw(CHANGES)(record))


def hostile() -> list[Record]:
    """Return a reading with each of DATA, and events of a gateway with each of the numbers in all fields."""
    gateway, made = Gateway("gw-2", "00000000000000b2"), list[Record]()
    for number, text in enumerate(DATA):
        made.append(with_data(gateway.record(Event(DEVICE, id=number, time=ACCEPTED, data={"a": 1})), text))
    for kind in TYPES:
        for one in _NUMBERS:
            told = {
                **dict.fromkeys(FIELDS, one),
                "labels": [[EPOCH, one, BIG]],
                "epoch": EPOCH,
                "previous_epoch": EPOCH,
            }
            event = Event(
                gateway_device("gw-2"), kind, id=len(made), data={**told, "digest": "", "previous_digest": ""}
            )
            record = gateway.record(event, ACCEPTED)
            made.append(replace(record, value=record.value.replace(b'"via":"coap"', b'"via":"gateway"')))
    return made


def last_labels(count: int) -> list[Record]:
    """Return the last label of many epochs, whose holes together exceed 64 bits."""
    event = Event(DEVICE, data={"t": 1})
    return [Gateway(G, f"{epoch:016x}", (1 << 53) - 2).record(event, ACCEPTED) for epoch in range(1, count + 1)]


@pytest.mark.guarantee(5)
@pytest.mark.heavy
@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(records(), min_size=10, max_size=20))
def test_nothing_that_a_writer_sends_stops_job_audit_or_queries(
    spark: SparkSession, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory, drawn: list[Record]
) -> None:
    sent = topic(spark, [*drawn, *hostile(), *last_labels(1_100)], appended=ACCEPTED).localCheckpoint()
    survivors = read_records(sent).dropDuplicates(["key"]).localCheckpoint()
    folder, table = tmp_path_factory.mktemp("any"), f"t{uuid4().hex}"
    in_postgres = PostgresSink(postgres.connection, table, f"{table}_quarantine", Devices(spark, None), 7 * 86_400)
    in_postgres.claim(replace(COMMIT, batch=CLAIM_ONLY, ends={}))
    for sink in (sink_of(spark, folder), in_postgres):
        written = sink.write(survivors, COMMIT, ALL_LATE)
        assert written.rows + written.bad + written.found == survivors.count()
    connection = postgres.write_connection(folder / "connection")
    delta = ("--table", f"{folder}/events")
    ends = ("--bootstrap-servers", "unused:9092", "--output", "unused")
    for words in (delta, ("--sink", "postgres", "--table", table, "--connection", str(connection))):
        check_audit(sent, read_table(spark, parse([*ends, *words]).tables))
        check_queries(spark, words)
    check_duckdb(folder)


def check_audit(sent: DataFrame, view: TableView) -> None:
    judged = account.judge(read(sent), view.rows, view.quarantine).localCheckpoint()
    ended = account.endings(view.gateway_events).localCheckpoint()
    labels = account.ranges(account.labels(judged))
    covered = account.merged(labels.unionByName(account.declared(view.gateway_events))).localCheckpoint()
    assert account.vanished(covered, view.rows, {0: BIG}).isEmpty()
    open_ = account.overdue(account.holes(covered, ended), F.current_timestamp(), 0)
    ranges = covered.unionByName(open_).localCheckpoint()
    states = account.states(ranges, ended)
    others = account.without_row(judged).select(*account.LABEL, "leaf")
    stated = sections.stated(view.gateway_events)
    compared = sections.compared(stated, view.leaves, others, ranges).localCheckpoint()
    compared = compared.unionByName(sections.uncovered(compared, states, ended))
    subject = replace(SUBJECT, span=TopicSpan("id", {0: 0}, {0: sent.count()}, 0))
    located = read(sent).join(to_locate(ranges), on=list(account.LABEL))
    false = forgery.verified(read(sent).filter(F.col("sequence").isNotNull())).limit(9).localCheckpoint()
    named = Named(located, account.unaccounted(covered, view.rows), false, {})
    found = find(judged, view.rows, ranges, states, compared, named, subject)
    assert found.unwritten == []
    assert found.missing > BIG
    assert [*report.lines(found), report.page(found)]


NAMES = ("events", "quarantine", "readings", "events_corrected", "gateway_events", "gateways")


def check_queries(spark: SparkSession, words: tuple[str, ...]) -> None:
    for name in NAMES:
        asked = query.parse([*words, f"SELECT * FROM {name}", "--rows", "1000000"])
        answer = resolve_name(asked.tables.kind.asks)(spark.newSession(), asked)
        for form in query.FORMS.values():
            form(answer.names, answer.rows, io.StringIO())


def check_duckdb(folder: Path) -> None:
    files = [uri.removeprefix("file://") for uri in DeltaTable(str(folder / "events")).file_uris()]
    scan = f"read_parquet({files!r}, hive_partitioning = true)"
    views = re.sub(r"CREATE VIEW quarantine.*\n", "", VIEWS["DuckDB"]).replace("delta_scan('./events')", scan)
    with closing(duckdb.connect()) as connection:
        connection.execute("SET TimeZone = 'UTC'; " + views)
        for name in NAMES:
            if name != "quarantine":
                connection.execute(f"SELECT * FROM {name}").fetchall()
