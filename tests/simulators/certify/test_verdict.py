"""What certify concludes from its facts, and how it reads results; without a broker."""

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import arro3.core
import duckdb
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from simulators.certify.command import main
from simulators.certify.result import AbsentError, Found, QueryError, Result
from simulators.certify.verdict import Facts, faults

MARKS = ("00112233445566778899aabbccddeeff", "ffeeddccbbaa99887766554433221100")
REFUSED = (2, 7)
COLUMNS = ("fingerprint", "kafka_partition", "kafka_offset")
ROWS = [(MARKS[0], None, None), (MARKS[1], None, None), (MARKS[1], None, None), (None, *REFUSED)]


@given(st.lists(st.tuples(*[st.booleans()] * 4)))
def test_it_names_exactly_what_is_lost_doubled_and_without_a_receipt(events: list[tuple[bool, ...]]) -> None:
    """Each event has a receipt or none, and is in the result or was refused."""
    facts, rows, refused = Facts("work"), Counter[str](), set[tuple[int, int]]()
    expected = defaultdict[str, list[str]](list)
    for number, (has_receipt, is_refused, is_lost, is_doubled) in enumerate(events):
        event, place = str(number), (0, number)
        facts.places[event] = {place}
        if has_receipt:
            facts.believed.add(event)
        if is_refused and not is_lost:
            refused.add(place)
        elif not is_lost:
            rows[event] = 2 if is_doubled else 1
        found = {"lost": has_receipt and is_lost, "doubled": rows[event] == 2, "missing": not has_receipt}
        for name, is_named in {**found, "refused": place in refused}.items():
            expected[name] += [event] if is_named else []
    facts.due = frozenset(facts.places)
    facts.found = Found(rows, frozenset(refused), names_refused=True)
    assert faults(facts) == {name: sorted(named) for name, named in expected.items() if named}


def test_what_was_seen_at_a_receipt_counts_whatever_the_end() -> None:
    facts = Facts("work", {"a": set()}, {"a"}, {"a": "while it was down"}, {"b": "no such column"}, aborted={"c"})
    facts.found = Found(Counter("ac"))
    assert list(faults(facts)) == ["premature", "invented", "unjudged"]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (Found(Counter("a"), frozenset({(0, 5)}), names_refused=True), ["partition 0, offset 6"]),
        (Found(Counter("ax"), frozenset({(0, 5)}), names_refused=True), None),
        (Found(Counter("a")), None),  # the query does not say where refused records are
    ],
)
def test_a_malformed_record_below_a_receipt_is_somewhere(found: Found, expected: list[str] | None) -> None:
    facts = Facts("work", {"a": {(0, 7)}}, {"a"}, malformed={(0, 5): "", (0, 6): "x"}, due=frozenset("a"), found=found)
    assert faults(facts).get("unrecorded") == expected


def in_sqlite(folder: Path) -> Result:
    with closing(sqlite3.connect(folder / "r.db")) as opened, opened:
        opened.execute("CREATE TABLE events (fingerprint, kafka_partition, kafka_offset)")
        opened.executemany("INSERT INTO events VALUES (?, ?, ?)", ROWS)
    return Result(f"sqlite://{folder}/r.db", "SELECT * FROM {topic}")


def in_duckdb(folder: Path) -> Result:
    with closing(duckdb.connect(str(folder / "r.duckdb"))) as opened:
        opened.execute("CREATE TABLE events (fingerprint BLOB, kafka_partition INTEGER, kafka_offset BIGINT)")
        for mark, partition, offset in ROWS:
            opened.execute("INSERT INTO events VALUES (?, ?, ?)", [mark and bytes.fromhex(mark), partition, offset])
    return Result(f"duckdb:{folder}/r.duckdb", "SELECT * FROM {topic}")


def in_delta(folder: Path) -> Result:
    columns = zip(COLUMNS, zip(*ROWS, strict=True), strict=True)
    kinds = {"fingerprint": arro3.core.DataType.string()}
    arrays = [arro3.core.Array(list(c), kinds.get(name, arro3.core.DataType.int64())) for name, c in columns]
    write_deltalake(folder / "tables" / "events", arro3.core.Table.from_arrays(arrays, names=COLUMNS))
    return Result(f"delta:{folder}/tables", "SELECT * FROM {topic}")


def in_lines(folder: Path) -> Result:
    lines = [json.dumps(dict(zip(COLUMNS, row, strict=True)), default=str) for row in ROWS]
    (folder / "events.jsonl").write_text("\n".join([*lines, '{"fingerprint": "being wri']))
    return Result(f"jsonl:{folder}/{{topic}}.jsonl", "SELECT * FROM result")


@pytest.mark.parametrize("make", [in_sqlite, in_duckdb, in_delta, in_lines])
def test_every_kind_of_result_is_read(tmp_path: Path, make: Callable[[Path], Result]) -> None:
    result = make(tmp_path)
    found = result.read("events")
    assert found == Found(Counter({MARKS[0]: 1, MARKS[1]: 2}), frozenset({REFUSED}), names_refused=True)
    with pytest.raises(AbsentError):
        Result(result.url, "SELECT fingerprint FROM nowhere").read("events")
    with pytest.raises(QueryError, match=r"wrong"):
        Result(result.url, result.query.replace("*", "wrong")).read("events")
    with pytest.raises(QueryError, match=r"none is named fingerprint"):
        Result(result.url, result.query.replace("*", "kafka_offset")).read("events")


@pytest.mark.parametrize(
    ("result", "command", "expected"),
    [
        ("mysql://localhost/db", ("true",), "expected postgresql://"),
        ("sqlite:r.db", ("no-such-program", "--topic"), "'no-such-program': no such program"),
        ("sqlite:r.db", ("sleep 5",), "give its words one by one, or: -- sh -c 'sleep 5'"),
        ("sqlite:r.db", (), "expected -- COMMAND"),
    ],
)
def test_wrong_usage_is_named(
    result: str, command: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = main(["--result", result, "--query", "SELECT 1", "--", *command], "certify")
    except SystemExit as error:
        status = int(str(error.code))
    assert status == 2
    assert expected in capsys.readouterr().err
