"""The index of fingerprints: added ones are found, forgotten ones are not, and memory is bounded."""

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.store.fingerprints import sealing, segments
from agent.store.fingerprints.index import FingerprintIndex, IndexBounds
from agent.store.fingerprints.memtable import MOMENT_MS, Memtable
from agent.store.fingerprints.sealing import Begin, Sealing
from agent.store.fingerprints.segments import ENTRIES_PER_ROW, Origin, SealedFingerprint, pack_entry
from agent.store.fingerprints.transient import FORGOTTEN
from agent.store.schema import database

few_bytes = st.integers(0, 3).map(lambda value: bytes(15) + bytes([value]))
fingerprint = st.one_of(st.binary(min_size=16, max_size=16), few_bytes).filter(lambda value: value != FORGOTTEN)
commits = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3 * MOMENT_MS), st.lists(fingerprint, min_size=1, max_size=5)),
    max_size=20,
)


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(database.open_for_service(tmp_path / "events.db")) as connection:
        yield connection


def transactions(connection: sqlite3.Connection) -> Begin:
    @contextmanager
    def begin() -> Iterator[sqlite3.Connection]:
        connection.execute("BEGIN IMMEDIATE")
        yield connection
        connection.execute("COMMIT")

    return begin


def some(count: int, seed: int = 1) -> list[bytes]:
    chance = random.Random(seed)
    return [chance.randbytes(16) for _ in range(count)]


@given(commits)
def test_a_block_answers_like_a_dictionary_and_knows_each_moment(added: list[tuple[int, int, list[bytes]]]) -> None:
    block, model, moments = Memtable(128), dict[bytes, int](), list[tuple[int, int]]()
    position, service = 1, 0
    for hole, pause, found in added:
        position, service = position + hole, service + pause
        block.add(position, service, b"".join(found))
        for piece in found:
            model[piece] = position
            moments.append((position, service))
            position += 1
    assert {piece: block.position(piece) for piece in model} == model
    assert block.position(b"\xff" * 16) == model.get(b"\xff" * 16)
    for place, (held, service) in enumerate(moments):
        assert block.position_at(place) == held
        assert service - MOMENT_MS < block.service_ms_at(place) <= service
    assert [at for first, last in block.runs() for at in range(first, last + 1)] == [held for held, _ in moments]


@given(count=st.integers(1, 3 * ENTRIES_PER_ROW), alike=st.integers(0, 2 * ENTRIES_PER_ROW), seed=st.integers(0, 99))
def test_a_segment_gives_every_entry_back_and_no_other(count: int, alike: int, seed: int) -> None:
    # Similar: their prefixes are equal, so rows may only be split around them.
    found = {*some(count, seed), *(b"alike" + piece[5:] for piece in some(alike, seed))}
    origin = Origin(5, 60_000)
    entries = [
        SealedFingerprint(piece, 10 + place, 70_000 + place % 7 * MOMENT_MS)
        for place, piece in enumerate(sorted(found, key=hash))
    ]
    packed = sorted(pack_entry(origin, entry.fingerprint, entry.position, entry.service_ms) for entry in entries)
    entries.sort(key=lambda entry: entry.fingerprint)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        database.migrate(connection, Path("memory"))
        segments.insert_sealed(connection, 7, origin, packed)
        assert list(segments.entries(connection, 7)) == entries
        assert [segments.find(connection, 7, entry.fingerprint) for entry in entries] == entries
        for stranger in (*some(50, 100), b"alike" + bytes(11), bytes(16), b"\xff" * 16):
            assert segments.find(connection, 7, stranger) is None
            assert segments.find(connection, 6, stranger) is segments.find(connection, 8, stranger) is None


@pytest.mark.guarantee(2)
@pytest.mark.parametrize("memory_bytes", [64_000, 2 * Memtable.bytes_max(256)], ids=["filters", "no filter"])
def test_what_is_sealed_is_found_with_its_position_and_memory_stays_bounded(
    connection: sqlite3.Connection, memory_bytes: int
) -> None:
    bounds = IndexBounds(memory_bytes, 256)
    known = FingerprintIndex(bounds)
    sealing = Sealing(known, lambda: connection, transactions(connection), lambda: 0)
    added = some(5000)
    for place in range(0, len(added), 50):
        known.add(place + 1, place, b"".join(added[place : place + 50]))
        assert sealing.is_due is (known.full_memtable() is not None)
        while sealing.is_due:
            sealing.step()
        assert known.held_bytes() <= bounds.memory_bytes
    assert len(list(known.segments())) == len(added) // 256
    assert [known.position(piece, lambda: connection) for piece in added] == list(range(1, len(added) + 1))
    assert not any(known.position(stranger, lambda: connection) for stranger in some(500, 2))


@given(added=commits, seed=st.integers(0, 99))
def test_a_segment_has_each_fingerprint_of_its_memtable_once_at_its_latest_position(
    added: list[tuple[int, int, list[bytes]]], seed: int
) -> None:
    known, model, moments = FingerprintIndex(IndexBounds(64_000, 128)), dict[bytes, int](), dict[int, int]()
    position, service = 1, 100 * MOMENT_MS
    for hole, pause, found in (*added, (0, 0, some(128, seed))):
        position, service = position + hole, service + (pause if seed % 2 else -pause)
        known.add(position, service, b"".join(found))
        model.update((piece, place) for place, piece in enumerate(found, position))
        moments.update((place, service) for place in range(position, position + len(found)))
        position += len(found)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        database.migrate(connection, Path("memory"))
        sealing = Sealing(known, lambda: connection, transactions(connection), lambda: 0)
        while sealing.step():
            pass
        (segment,) = known.segments()
        entries = list(segments.entries(connection, segment.number))
    sealed = {entry.fingerprint: entry.position for entry in entries}
    assert sealed == {piece: place for piece, place in model.items() if place <= segment.last}
    assert segment.count == len(sealed)
    assert all(0 <= moments[entry.position] - entry.service_ms < 2 * MOMENT_MS for entry in entries)


def test_what_is_given_up_is_forgotten_wherever_it_lies_and_may_come_again(connection: sqlite3.Connection) -> None:
    known = FingerprintIndex(IndexBounds(1 << 20, 64))
    sealing = Sealing(known, lambda: connection, transactions(connection), lambda: 0)
    added = some(150)
    known.add(1, 0, b"".join(added))
    while sealing.step():
        pass
    known.forget(10, 20)
    known.forget(140, 145)
    gone = {*range(10, 21), *range(140, 146)}
    for position, piece in enumerate(added, 1):
        assert known.position(piece, lambda: connection) == (None if position in gone else position)
    known.add(151, 0, added[9] + added[139])
    assert (known.position(added[9], lambda: connection), known.position(added[139], lambda: connection)) == (151, 152)
    known.add(153, 0, b"".join(some(100, 3)))
    while sealing.step():
        pass
    assert (known.position(added[9], lambda: connection), known.position(added[139], lambda: connection)) == (151, 152)


def test_sealed_fingerprints_are_past_their_retention_to_the_moment(connection: sqlite3.Connection) -> None:
    known = FingerprintIndex(IndexBounds(1 << 20, 64))
    sealing = Sealing(known, lambda: connection, transactions(connection), lambda: 0)
    added = some(64)
    for place, piece in enumerate(added):
        known.add(place + 1, place * MOMENT_MS, piece)
    while sealing.step():
        pass
    known.expire(0, 30 * MOMENT_MS)
    assert [known.position(piece, lambda: connection) for piece in added] == [None] * 30 + list(range(31, 65))


def test_a_block_that_is_past_its_retention_leaves_memory(connection: sqlite3.Connection) -> None:
    known = FingerprintIndex(IndexBounds(1 << 20, 64))
    added = some(100)
    known.add(1, 0, b"".join(added))
    held = known.held_bytes()
    known.expire(70, 0)
    assert known.held_bytes() < held
    assert [known.position(piece, lambda: connection) for piece in added[60:]] == [None] * 9 + list(range(70, 101))


def test_a_step_of_the_sealing_reads_few_entries(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealing, "ENTRIES_PER_STEP", 4)
    known = FingerprintIndex(IndexBounds(1 << 20, 1024))
    steps, read = Sealing(known, lambda: connection, transactions(connection), lambda: 0), list[int]()
    is_forgotten = known.is_forgotten

    def noting(position: int) -> bool:
        read.append(position)
        return is_forgotten(position)

    monkeypatch.setattr(known, "is_forgotten", noting)
    known.add(1, 0, b"".join(some(1024)))
    most = 0
    while steps.step():
        most, read[:] = max(most, len(read)), []
    assert most == 4
    assert [segment.count for segment in known.segments()] == [1024]
