"""The user's own processing in the consumer: the laws of the transform, and effects wherever it is killed."""

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.rows import dict_row

from cloud import hooks
from cloud.consumer import Reader, Subscription
from cloud.errors import HookError, HookTimeError, JobError, StopError
from cloud.plain_consumer.effects import DueEffects
from cloud.plain_consumer.metrics import ConsumerMetrics
from cloud.plain_consumer.records import Appended, judge
from cloud.plain_consumer.table import ConsumerTable, Place
from cloud.plain_consumer.transform import DictTransform
from cloud.postgres.connection import connected
from cloud.runtime.repeated import Repeated
from cloud.stream.receipts import Receipts
from cloud.table.sink import Written
from contract.event import Event
from simulators.services.postgres import Postgres
from tests.cloud.gateway import Gateway, Record, readings, without_header
from tests.cloud.plain_consumer.consuming import ConsumerSide
from tests.cloud.tables import ACCEPTED, DEVICE
from tests.docs.pages import ROOT, blocks

pytestmark = pytest.mark.guarantee(5)

RETENTION = 7 * 86_400
EVENTS = 3
MODULE = """
CALLS = []
def transform(rows):
    for row in rows:
        row["n"] = int(row["id"])
        row["reject"] = "nine" if row["n"] % 10 == 9 else None
    return rows
def effects(rows, key):
    CALLS.append((key, sorted((row["n"], row["type"], row["data"]) for row in rows)))
"""


@dataclass(slots=True)
class Tables:
    """The consumer's tables, to which records are written through a transform."""

    connection: str
    name: str = field(default_factory=lambda: f"t{uuid4().hex}")

    def write(self, transform: Callable[..., Any], records: list[Record]) -> Written:
        judged = [
            judge(one.key, one.value, one.headers, Appended(0, at, ACCEPTED), seen=datetime.now(UTC), known={})
            for at, one in enumerate(records)
        ]
        with self.opened() as table:
            table.begin({0: Place(0, 0, 0)}, "id")
            was = table.places("id")
            now = {0: Place(0, was[0].next + len(records), 0)}
            made = DictTransform(hooks.Hook("plant:transform", lambda: transform))(judged)
            return table.write(made, was, now, "events", "id")

    @contextmanager
    def opened(self) -> Iterator[ConsumerTable]:
        with connected(self.connection) as connection:
            yield ConsumerTable(connection, self.name, f"{self.name}_quarantine", RETENTION, keeps_new=True)

    def due(self) -> list[tuple[int, int]]:
        """Return the batches whose effects are due, each with the number of its rows."""
        with self.opened() as table:
            return [(batch, len(table.new_rows(batch))) for batch in table.due([0])]

    def select(self, statement: str) -> list[dict[str, Any]]:
        with psycopg.connect(self.connection, row_factory=dict_row) as connection:
            found = connection.execute(statement.format(self.name).encode())
            return found.fetchall() if found.description else []


@pytest.fixture
def tables(postgres: Postgres) -> Tables:
    return Tables(postgres.connection)


def events(count: int) -> list[Record]:
    return Gateway().records([Event(DEVICE, id=number, data={"t": number}) for number in range(count)], ACCEPTED)


def test_columns_are_added_and_rejected_rows_are_in_quarantine(tables: Tables) -> None:
    values = {
        "boolean": True,
        "bigint": 1 << 62,
        "double precision": 2.5,
        "numeric": Decimal("1.10"),
        "text": "a\tb\x00\ud800",
        "bytea": b"\x00",
        "date": date(2026, 1, 1),
        "timestamp with time zone": datetime(2026, 1, 1, tzinfo=UTC),
        'moisture in %(m)s "{}': 40,
    }

    def transform(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        assert all(row["fingerprint"] for row in rows)  # what is not well-formed is no row
        made = [row | values | {"empty": None, "x": (1, 0.5)[row["kafka_offset"] % 2]} for row in rows[::-1]]
        return [row | {"reject": "too\x00 hot"} if row["id"] == "2" else row for row in made]

    records = [*events(4), without_header(events(1)[0], "ce_id")]
    written = tables.write(transform, records)
    assert (written.rows, written.rejected, written.bad, written.found) == (3, 1, 1, 0)
    assert tables.write(transform, records).rows == 0
    [row, *_] = tables.select("SELECT * FROM {} ORDER BY kafka_offset")
    assert {name: row[name] for name in values} == values | {"text": "a\tb\ufffd?"}
    assert (row["x"], "empty" in row) == (1.0, False)
    reasons = tables.select("SELECT reason, value FROM {}_quarantine ORDER BY reason")
    assert [one["reason"] for one in reasons] == ["fingerprint", "rejected: too\ufffd hot"]
    assert bytes(reasons[1]["value"]) == records[2].value
    assert tables.write(lambda rows: [row | {"numeric": 3, "x": 7} for row in rows], events(5)).rows == 2


def test_new_rows_wait_for_their_effects_also_where_the_table_is_named_as_the_product(tables: Tables) -> None:
    tables.name = "oncegate"
    assert tables.write(lambda rows: rows, events(3)).rows == 3
    assert [count for _, count in tables.due()] == [3]


def test_new_rows_are_read_on_one_connection_also_after_a_column_was_added(tables: Tables) -> None:
    tables.write(lambda rows: rows, events(3))
    [(batch, _)] = tables.due()
    with tables.opened() as table:
        for _ in range(10):  # more than psycopg executes without a prepared statement
            assert len(table.new_rows(batch)) == 3
        tables.select("ALTER TABLE {} ADD COLUMN later integer")
        assert [row["later"] for row in table.new_rows(batch)] == [None] * 3


@pytest.mark.parametrize(
    "statement", ["DELETE FROM {0}", "TRUNCATE {0}; TRUNCATE {0}_new; SELECT setval('{0}_batches', 1, false)"]
)
def test_rows_that_were_deleted_or_set_back_come_again_as_new_ones_under_a_key_that_no_effect_has_had(
    tables: Tables, statement: str
) -> None:
    tables.write(lambda rows: rows, events(3))
    [(before, _)] = tables.due()
    tables.select(statement)
    assert tables.write(lambda rows: rows, events(3)).rows == 3
    [(number, count)] = tables.due()
    assert (count, number > before) == (3, True)


def test_the_pages_transform_for_dicts(tables: Tables) -> None:
    page: dict[str, Any] = {}
    exec(blocks(ROOT / "docs" / "processing.md", "python")[-1], page)
    sent = [Event(DEVICE, id=n, data={"temperature": value}) for n, value in enumerate((21.5, "warm", 900, 4))]  # type: ignore[dict-item]
    assert tables.write(page["transform_dicts"], Gateway().records(sent, ACCEPTED)).rejected == 1
    rows = tables.select("SELECT temperature FROM {} ORDER BY kafka_offset")
    assert [row["temperature"] for row in rows] == [21.5, None, 4]


def with_value(value: object) -> Callable[[list[dict[str, Any]]], Any]:
    return lambda rows: [row | {"x": value} for row in rows]


WRONG: list[tuple[Callable[[list[dict[str, Any]]], Any], str]] = [
    (lambda rows: rows[1:], "of 3 rows it has 1 lost"),
    (lambda rows: [*rows, rows[1]], "of 3 rows it has 1 doubled"),
    (lambda rows: [rows[1], *rows[1:]], "of 3 rows it has 1 lost, 1 doubled"),
    (lambda rows: [*rows, rows[1] | {"kafka_offset": 99}], "of 3 rows it has 1 invented"),
    (lambda rows: [row | {"data": "{}"} for row in rows], "of 3 rows it has 3 changed"),
    (lambda rows: [row | {"sequence": float(row["sequence"])} for row in rows], "of 3 rows it has 3 changed"),
    (lambda rows: [{"id": row["id"]} for row in rows], "it does not return the column appended"),
    (lambda rows: None, "it returns NoneType, not a list of dicts"),
    (lambda rows: [row | {"reject": 1} for row in rows], "its column reject has values of the type int"),
    (lambda rows: [row | {1: 1} for row in rows], "its column 1 has no name"),
    (lambda rows: [row | {"x": ("a", 1)[row["id"] == "1"]} for row in rows], "x has values of the type int and str"),
    (with_value([1]), "its column x has values of the type list: make texts of them"),
    (with_value(1 << 63), "its column x has a number of more than 64 bits"),
    (with_value(datetime(2026, 1, 1)), "its column x has a time without a zone"),  # noqa: DTZ001
    (lambda rows: [row | {"long" * 20: 1} for row in rows], "PostgreSQL takes names of 63 bytes"),
]


def test_a_transform_that_does_not_return_the_same_rows_writes_nothing(tables: Tables) -> None:
    for transform, told in WRONG:
        with pytest.raises(StopError, match=told):
            tables.write(transform, events(3))
    assert tables.select("SELECT FROM {} UNION ALL SELECT FROM {}_quarantine".replace("{}_", f"{tables.name}_")) == []
    assert tables.write(lambda rows: rows, events(3)).rows == 3


def test_a_column_that_cannot_take_the_values_stops_with_both_types(tables: Tables) -> None:
    tables.write(with_value(1), events(1))
    tables.select("ALTER TABLE {} ADD COLUMN g double precision GENERATED ALWAYS AS (length(data)) STORED")
    with pytest.raises(StopError, match="x has the type bigint, and the transform writes double precision"):
        tables.write(with_value(1.5), events(2))
    with pytest.raises(StopError, match=r"g has the type double precision \(generated\), and the transform writes"):
        tables.write(lambda rows: [row | {"g": 1.5} for row in rows], events(2))


@pytest.mark.parametrize(
    ("kind", "fits", "value", "own"),
    [
        ("smallint", -(1 << 15), 1 << 15, "bigint"),
        ("integer", (1 << 31) - 1, 1 << 31, "bigint"),
        ("real", float("inf"), 3.5e38, "double precision"),
    ],
)
def test_a_column_of_a_smaller_type_never_has_a_part_of_a_value(
    tables: Tables, kind: str, fits: float, value: float, own: str
) -> None:
    tables.write(lambda rows: rows, events(1))
    tables.select(f"ALTER TABLE {{}} ADD COLUMN x {kind}")
    with pytest.raises(StopError, match=f"x has the type {kind}, and the transform writes {own}"):
        tables.write(with_value(value), events(2))
    tables.write(with_value(fits), events(2))
    assert tables.select("SELECT x FROM {} WHERE x IS NOT NULL") == [{"x": fits}]


def test_an_error_of_the_users_code_is_one_line_with_its_place(tables: Tables) -> None:
    with pytest.raises(HookError) as failed:
        tables.write(lambda rows: rows["id"], events(1))
    assert str(failed.value).startswith(f"plant:transform: {__file__}:")
    assert "TypeError" in str(failed.value)
    assert "\n" not in str(failed.value)


class KilledError(JobError):
    """Ends the consumer at a step, as a kill does for all that comes after it."""


@dataclass(slots=True)
class EffectsSide:
    """A topic, its table, and the consumer that writes it, in the test's own process."""

    side: ConsumerSide
    consume: Callable[[Callable[[], bool]], None]
    """Reads until the condition holds."""
    gateway: Gateway = field(default_factory=Gateway)
    sent: list[int] = field(default_factory=list)
    """By offset the number of the event."""
    first: Record | None = None

    def run(self) -> None:
        """Send new events, the first one again, and one that is rejected; read until all are receipted."""
        start = 10 * (len(self.sent) // (EVENTS + 2))
        *new, rejected = self.gateway.records([*readings(EVENTS, start=start), *readings(1, start=start + 9)])
        self.first = self.first or new[0]
        self.side.send([*new, self.first, rejected], 0)
        self.sent += [*range(start, start + EVENTS), 0, start + 9]
        self.consume(lambda: self.side.receipted() == len(self.sent))

    def wrong(self) -> list[str]:
        """Return what is wrong with the effects, of which whoever stores the key keeps the first call of each."""
        calls: list[tuple[str, list[tuple[Any, ...]]]] = sys.modules["plant"].CALLS
        kept = dict(calls)
        wrong = [f"{key} has had other rows before" for key, rows in calls if rows != kept[key]]
        order = list(dict.fromkeys(key for key, _ in calls))
        places = [order.index(key) for key, _ in calls]
        wrong += ["a batch came again after a later one" for one, other in pairwise(places) if other < one]
        made = Counter(number for rows in kept.values() for number, *_ in rows)
        due = {number for number in self.sent[: self.side.receipted()] if number % 10 != 9}
        wrong += [f"{number} is receipted and has no effect" for number in sorted(due - made.keys())]
        too_many = {number: count for number, count in made.items() if count > 1 or number % 10 == 9}
        return wrong + [f"{number} has {count} effects" for number, count in too_many.items()]


@contextmanager
def killed(kind: type, name: str, *, call: int = 1, after: bool = False) -> Iterator[None]:
    """Kill the consumer at the given call of a method, before or after it does its work."""
    method, calls = getattr(kind, name), iter(range(1, 1000))

    def work(*arguments: Any, **named: Any) -> Any:
        is_it = next(calls) == call
        if is_it and not after:
            raise KilledError(name)
        done = method(*arguments, **named)
        if is_it:
            raise KilledError(name)
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, name, work)
        yield


@pytest.fixture
def effects(side: ConsumerSide, monkeypatch: pytest.MonkeyPatch) -> Iterator[EffectsSide]:
    def consume(is_done: Callable[[], bool]) -> None:
        quick, metrics = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "500"}, ConsumerMetrics(None)
        subscription = Subscription(side.bootstrap_servers, side.name, side.name, None, None, quick)
        stop: Any = SimpleNamespace(is_set=is_done)
        names = (side.name, f"{side.name}_quarantine", RETENTION)
        with connected(side.server.connection) as connection:
            table = ConsumerTable(connection, *names, keeps_new=True)
            due = DueEffects(Repeated(hooks.find("plant:effects"), 60, metrics), table)
            transform = DictTransform(hooks.find("plant:transform"))
            Reader(subscription, table, dict, metrics, None, transform, due).run(stop)

    (side.folder / "plant.py").write_text(MODULE)
    monkeypatch.chdir(side.folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield EffectsSide(side, consume)
    sys.modules.pop("plant", None)


KILLS: list[Callable[[], Any]] = [
    partial(killed, ConsumerTable, "write"),
    partial(killed, ConsumerTable, "write", after=True),
    partial(killed, Repeated, "attempt"),
    partial(killed, Repeated, "attempt", after=True),
    partial(killed, ConsumerTable, "done"),
    partial(killed, ConsumerTable, "done", after=True),
    partial(killed, Receipts, "commit", call=2),
]


@pytest.mark.kafka
@pytest.mark.heavy
def test_each_new_row_has_its_effect_once_wherever_the_consumer_is_killed(effects: EffectsSide) -> None:
    for kill in KILLS:
        with kill(), pytest.raises(KilledError):
            effects.run()
        assert effects.wrong() == []
    effects.run()
    assert effects.wrong() == []
    assert effects.side.select("SELECT count(*) FROM {}_new") == [(0,)]


def test_gateways_are_told_of_effects_that_take_too_long() -> None:
    over, told = threading.Event(), list[str]()
    table: Any = SimpleNamespace(id="t", due=lambda _: [1], new_rows=lambda _: [])
    hook = hooks.Hook("plant:effects", lambda: lambda *_: over.wait())
    with pytest.raises(HookTimeError):
        DueEffects(Repeated(hook, 0.1, ConsumerMetrics(None)), table)([0], lambda: told.append("failing"))
    over.set()
    assert told == ["failing"]


FAILING = """
import json, pathlib
FOLDER = pathlib.Path(__file__).parent
def effects(rows, key):
    assert not (FOLDER / "fail").exists(), "as long as the file is there"
    with (FOLDER / "done").open("a") as done:
        print(json.dumps([key, [int(row["id"]) for row in rows]]), file=done)
"""


@pytest.mark.kafka
@pytest.mark.heavy
def test_whoever_takes_over_makes_the_effects_that_have_failed_before_anything_later(
    side: ConsumerSide, monkeypatch: pytest.MonkeyPatch, gateway: Gateway
) -> None:
    """The first member fails, and is killed; more is sent than one poll returns."""
    monkeypatch.setenv("PYTHONPATH", str(side.folder))
    (side.folder / "plant.py").write_text(FAILING)
    (side.folder / "fail").touch()
    side.send(gateway.records(readings(10)))
    side.start("--effects", "plant:effects")
    side.wait("stage=effects failures=3")
    assert f"plant:effects: {side.folder}/plant.py:5: AssertionError: as long as" in side.log()
    side.send(gateway.records(readings(12_000, start=10)))
    side.wait("stage=effects failures=4")
    assert (side.ids(), side.noted()) == (list(range(10)), {0: (0, True), 1: (0, True)})
    side.members[-1].kill()
    side.start("--effects", "plant:effects")
    side.wait("stage=effects failures=2")
    (side.folder / "fail").unlink()
    side.wait_for_receipts({0: 12_010, 1: 0})
    assert side.noted() == {0: (12_010, False), 1: (0, False)}
    made = [line.split(", ", 1) for line in (side.folder / "done").read_text().splitlines()]
    numbers = [int(number) for _, rows in made for number in rows.strip("[]").split(", ")]
    assert numbers == list(range(12_010)) == side.ids()
    assert len({key for key, _ in made}) == len(made)
    assert side.members[-1].terminate() == 0
