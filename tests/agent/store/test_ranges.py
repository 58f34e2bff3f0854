"""Ranges and coverage against plain sets of positions."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from agent.store.ranges import Coverage, Ranges
from tests.agent.store.stores import batch

SPANS = st.tuples(st.integers(1, 60), st.integers(0, 9)).map(lambda pair: (pair[0], pair[0] + pair[1]))


def positions(spans: list[tuple[int, int]]) -> set[int]:
    return {position for first, last in spans for position in range(first, last + 1)}


@given(st.lists(SPANS, max_size=12))
def test_ranges_hold_what_was_added_and_never_touch(spans: list[tuple[int, int]]) -> None:
    ranges = list(Ranges(spans))
    assert positions(ranges) == positions(spans)
    assert all(left[1] + 1 < right[0] for left, right in pairwise(ranges))


@given(st.lists(SPANS, max_size=6), st.lists(SPANS, max_size=6), st.integers(0, 70), st.integers(0, 80))
def test_the_next_new_range_is_the_first_that_nothing_covers(
    forwarded: list[tuple[int, int]], processed: list[tuple[int, int]], after: int, end: int
) -> None:
    taken = positions(processed)
    batches = []
    for first, last in forwarded:
        if not taken & positions([(first, last)]):
            taken |= positions([(first, last)])
            batches.append(batch(first, last))
    new = [position for position in range(after + 1, end + 1) if position not in taken]
    found = Coverage(batches, processed).next_new(after, end)
    if not new:
        assert found is None
    else:
        assert found is not None
        first, last = found
        assert first == new[0]
        assert positions([found]) <= set(new)
        assert last == end or last + 1 in taken
