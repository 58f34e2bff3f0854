"""The index of fingerprints: what was added is found, what is forgotten is not, and memory is bounded."""

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.store.fingerprints import sealing, segments
from agent.store.fingerprints.filters import (
    HASHES,
    PLANE_FILTERS,
    BloomFilter,
    Filters,
    FilterSlices,
    filter_bytes,
)
from agent.store.fingerprints.index import SEGMENT_EVENTS, FingerprintIndex, IndexBounds
from agent.store.fingerprints.memtable import MOMENT_MS, Memtable
from agent.store.fingerprints.sealing import Begin, Sealing
from agent.store.fingerprints.segments import ENTRIES_PER_ROW, Origin, SealedFingerprint, pack_entry
from agent.store.fingerprints.transient import FORGOTTEN, RetransmissionKeys
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


def test_a_range_that_is_forgotten_stays_so_where_a_shorter_one_from_there_on_is_forgotten_again(
    connection: sqlite3.Connection,
) -> None:
    for last in (9, 7, 12):
        segments.forget(connection, 5, last)
        assert segments.load_forgotten(connection) == [(5, max(9, last))]


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
        assert known.in_memory_bytes() <= bounds.memory_bytes
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
        assert {piece: known.position(piece, lambda: connection) for piece in model} == model, "sealed or not"
    sealed = {entry.fingerprint: entry.position for entry in entries}
    assert sealed == {piece: place for piece, place in model.items() if place <= segment.last}
    assert segment.count == len(sealed)
    assert all(0 <= moments[entry.position] - entry.service_ms < 2 * MOMENT_MS for entry in entries)


def test_a_step_of_the_sealing_reads_few_entries(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealing, "ENTRIES_PER_STEP", 4)
    known = FingerprintIndex(IndexBounds(1 << 20, 1024))
    steps, read = Sealing(known, lambda: connection, transactions(connection), lambda: 0), list[int]()
    is_remembered = known.is_remembered

    def noting(position: int) -> bool:
        read.append(position)
        return is_remembered(position)

    monkeypatch.setattr(known, "is_remembered", noting)
    known.add(1, 0, b"".join(some(1024)))
    most = 0
    while steps.step():
        most, read[:] = max(most, len(read)), []
    assert most == 4
    assert [segment.count for segment in known.segments()] == [1024]


LIFETIME_MS, COUNT_MAX = 100, 5


@pytest.mark.guarantee(2)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=60))
def test_a_key_counts_for_its_lifetime_as_long_as_it_is_among_the_latest(steps: list[tuple[int, int]]) -> None:
    keys = RetransmissionKeys(LIFETIME_MS, COUNT_MAX)
    told: dict[bytes, tuple[int, int]] = {}
    now = 0
    for position, (passed, name) in enumerate(steps, 1):
        now += passed
        key = bytes((name,))
        told.pop(key, None)
        told[key] = (position, now)
        keys.remember(key, position, now)
        assert len(keys._positions) <= COUNT_MAX
        latest = list(told)[-COUNT_MAX:]
        for known, (first, since) in told.items():
            counts = known in latest and now - since <= LIFETIME_MS
            assert keys.position(known, now, LIFETIME_MS) == (first if counts else None)


EVENTS = 16
PLANE_BYTES = PLANE_FILTERS * filter_bytes(EVENTS)

steps = st.lists(st.tuples(st.booleans(), st.integers(1, 80)), max_size=120)


def content_of(members: list[bytes], events: int = EVENTS) -> bytes:
    bloom = BloomFilter(events)
    bloom.add(members)
    return bloom.content()


@pytest.mark.guarantee(2)
@given(steps, st.integers(0, 18), st.booleans())
def test_a_filter_never_hides_what_a_segment_has(steps: list[tuple[bool, int]], halves: int, mixed: bool) -> None:
    bytes_max = halves * PLANE_BYTES // 2
    filters = Filters(bytes_max)
    present: dict[int, list[bytes]] = {}
    for is_added, number in steps:
        if is_added and number not in present:
            present[number] = some(EVENTS, number)
            larger = 2 if mixed and number % 3 == 0 else 1
            filters.add(number, content_of(present[number], EVENTS * larger))
        elif not is_added and number in present:
            del present[number]
            filters.drop(number)
        assert filters.in_memory_bytes() <= bytes_max
    for number, members in present.items():
        assert all(number in filters.candidates(member) for member in members)
    for stranger in some(20, 0):
        assert set(filters.candidates(stranger)) <= set(present)
        assert filters.candidates(stranger) == sorted(filters.candidates(stranger), reverse=True)
    for number in present:
        filters.drop(number)
    assert filters.in_memory_bytes() == 0


@given(steps, st.integers(0, 120), st.randoms(use_true_random=False))
def test_many_filters_side_by_side_answer_as_each_alone(
    steps: list[tuple[bool, int]], folded_after: int, chance: random.Random
) -> None:
    bits = 64
    slices, alone = FilterSlices(bits), dict[int, int]()
    for step_number, (is_added, number) in enumerate(steps):
        if step_number == folded_after:
            slices.fold()
        if is_added and number not in alone:
            alone[number] = chance.getrandbits(bits) | chance.getrandbits(bits)
            slices.add(number, alone[number].to_bytes(bits // 8, "little"))
        elif not is_added and number in alone:
            del alone[number]
            slices.drop(number)
    assert sorted(slices) == sorted(alone)
    if folded_after < len(steps):
        bits //= 2
        alone = {number: content >> bits | content & (1 << bits) - 1 for number, content in alone.items()}
    for _ in range(50):
        place, step = chance.getrandbits(64), chance.getrandbits(64) | 1
        places = [(place + hash_ * step) % bits for hash_ in range(HASHES)]
        expected = {number for number, content in alone.items() if all(content >> at & 1 for at in places)}
        assert set(slices.candidates(place, step)) == expected


def look_ups(filters: Filters) -> float:
    """Count them for each unknown fingerprint, and each of 32 segments."""
    for number in range(1, 33):
        filters.add(number, content_of(some(1024, number), 1024))
    return sum(len(filters.candidates(stranger)) for stranger in some(20_000, 99)) / 20_000 / 32


def test_a_filter_spares_nearly_all_look_ups_and_a_folded_one_most() -> None:
    assert look_ups(Filters(1 << 20)) < 1 / 15_000
    assert 1 / 1_000 < look_ups(Filters(32 * filter_bytes(1024) // 2)) < 1 / 250


@pytest.mark.guarantee(2)
def test_a_million_fingerprints_take_less_than_twenty_megabytes() -> None:
    planes = -(-1_000_000 // SEGMENT_EVENTS // PLANE_FILTERS)
    assert 2 * Memtable.bytes_max(SEGMENT_EVENTS) + planes * PLANE_FILTERS * filter_bytes(SEGMENT_EVENTS) < 20e6


def test_a_block_that_is_past_its_retention_leaves_memory(connection: sqlite3.Connection) -> None:
    known = FingerprintIndex(IndexBounds(1 << 20, 64))
    added = some(100)
    known.add(1, 0, b"".join(added))
    before = known.in_memory_bytes()
    known.expire(70, 0)
    assert known.in_memory_bytes() < before
    assert [known.position(piece, lambda: connection) for piece in added[60:]] == [None] * 9 + list(range(70, 101))


def test_segments_without_a_filter_are_the_oldest() -> None:
    filters = Filters(PLANE_BYTES // 2)
    for number in range(1, 20):
        filters.add(number, content_of([]))
    assert filters.candidates(bytes(16)) == list(range(11, 0, -1))
