"""The filters of the segments: no false negatives, few false positives, bounded memory."""

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.store.fingerprints.filters import (
    HASHES,
    PLANE_FILTERS,
    SINGLE_FILTERS_MAX,
    BloomFilter,
    Filters,
    FilterSlices,
    filter_bytes,
)
from agent.store.fingerprints.index import SEGMENT_EVENTS
from agent.store.fingerprints.memtable import Memtable

EVENTS = 16
PLANE_BYTES = PLANE_FILTERS * filter_bytes(EVENTS)

steps = st.lists(st.tuples(st.booleans(), st.integers(1, 80)), max_size=120)


def some(count: int, seed: int = 1) -> list[bytes]:
    chance = random.Random(seed)
    return [chance.randbytes(16) for _ in range(count)]


def content_of(members: list[bytes], events: int = EVENTS) -> bytes:
    bloom = BloomFilter(events)
    bloom.add(members)
    return bloom.content()


def places(place: int, step: int, bits: int) -> Iterator[int]:
    return ((place + hash_ * step) % bits for hash_ in range(HASHES))


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
        assert filters.held_bytes() <= bytes_max
    for number, members in present.items():
        assert all(number in filters.candidates(member) for member in members)
    for stranger in some(20, 0):
        assert set(filters.candidates(stranger)) <= set(present)
        assert filters.candidates(stranger) == sorted(filters.candidates(stranger), reverse=True)


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
        expected = {
            number for number, content in alone.items() if all(content >> at & 1 for at in places(place, step, bits))
        }
        assert set(slices.candidates(place, step)) == expected


@pytest.mark.parametrize("segments", [1, 4, 8, 9, 33, 72])
def test_memory_grows_by_three_filters_then_by_a_plane_and_shrinks_again(segments: int) -> None:
    filters = Filters(1 << 20)
    for number in range(1, segments + 1):
        filters.add(number, content_of(some(EVENTS, number)))
        planes, single = divmod(number, PLANE_FILTERS)
        if single > SINGLE_FILTERS_MAX:
            planes, single = planes + 1, 0
        assert filters.held_bytes() == planes * PLANE_BYTES + single * PLANE_BYTES // PLANE_FILTERS
    for number in range(1, segments + 1):
        filters.drop(number)
        assert filters.held_bytes() <= (-(-(segments - number) // PLANE_FILTERS) + 1) * PLANE_BYTES
    assert filters.held_bytes() == 0


def look_ups(filters: Filters, segments: int) -> float:
    """Count them for each unknown fingerprint, and each of this number of segments."""
    for number in range(1, segments + 1):
        filters.add(number, content_of(some(1024, number), 1024))
    return sum(len(filters.candidates(stranger)) for stranger in some(20_000, 99)) / 20_000 / segments


def test_a_filter_spares_nearly_all_look_ups() -> None:
    assert look_ups(Filters(1 << 20), 32) < 1 / 15_000


def test_a_folded_filter_spares_most_look_ups() -> None:
    assert 1 / 1_000 < look_ups(Filters(32 * filter_bytes(1024) // 2), 32) < 1 / 250


def test_segments_without_a_filter_are_the_oldest() -> None:
    filters = Filters(PLANE_BYTES // 2)
    for number in range(1, 20):
        filters.add(number, content_of([]))
    assert filters.candidates(bytes(16)) == list(range(11, 0, -1))


@pytest.mark.guarantee(2)
def test_a_million_fingerprints_take_less_than_twenty_megabytes() -> None:
    planes = -(-1_000_000 // SEGMENT_EVENTS // PLANE_FILTERS)
    assert 2 * Memtable.bytes_max(SEGMENT_EVENTS) + planes * PLANE_FILTERS * filter_bytes(SEGMENT_EVENTS) < 20e6
