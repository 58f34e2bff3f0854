"""Forwarded batches, merged where they are many, in memory and on disk; and ranges of positions as sets."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.store import progress
from agent.store.counts import EventCounts
from agent.store.port import Batch, Offsets
from agent.store.progress import Progress
from agent.store.ranges import Coverage, Ranges
from contract.event import Event
from tests.agent.store.stores import TOPIC_ID, accept, batch, make_store

EVENTS = 60
FEW = 8


def one(position: int, leader_epoch: int = 0) -> Batch:
    """Return a batch of one event, as it arises where each event has a transaction of its own."""
    return Batch(position, position, TOPIC_ID, {position % 3: Offsets(position, position, leader_epoch)})


def forwarded_positions(batches: Sequence[Batch]) -> list[int]:
    return [position for batch in batches for position in range(batch.first, batch.last + 1)]


async def test_batches_without_receipts_are_merged_also_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "BATCHES_MAX", FEW)
    async with make_store(tmp_path) as store:
        await accept(store, *(Event("d", data={"n": number}) for number in range(EVENTS)))
        for position in range(1, EVENTS + 1):
            store.outbox.mark_forwarded(one(position))
            store.outbox.set_fact("intent", str(position))  # a transaction, which writes the mark
        waiting = store.outbox.forwarded()
        assert len(waiting) <= FEW
        assert forwarded_positions(waiting) == list(range(1, EVENTS + 1))
    async with make_store(tmp_path) as store:
        assert store.outbox.forwarded() == waiting
        spans = [offsets for batch in waiting for offsets in batch.partitions.items()]
        for partition in range(3):
            of_partition = [offsets for number, offsets in spans if number == partition]
            assert min(offsets.lowest for offsets in of_partition) == (partition or 3)
            assert max(offsets.highest for offsets in of_partition) == EVENTS - 3 + (partition or 3)
        store.outbox.mark_processed(waiting)
        assert store.outbox.forwarded() == ()


def test_batches_under_different_leaders_are_neither_merged_nor_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "BATCHES_MAX", FEW)
    marked = Progress(Coverage(), EVENTS)
    for position in range(1, EVENTS + 1):
        marked.mark_forwarded(Batch(position, position, TOPIC_ID, {0: Offsets(position, position, position)}))
        changes = marked.pending()
        assert len(changes) == 1
        marked.written(changes)
    assert len(marked.forwarded()) == EVENTS


@given(st.lists(st.tuples(st.sampled_from(["mark", "mark", "mark", "return", "give up"]), st.integers(1, EVENTS))))
def test_no_position_changes_its_state_by_a_merge(steps: list[tuple[str, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress, "BATCHES_MAX", 2)
        merging = Progress(Coverage(), EVENTS)
    separate = Progress(Coverage(), EVENTS)
    for step, position in steps:
        for each in (merging, separate):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(progress, "BATCHES_MAX", 2 if each is merging else EVENTS)
                _do(each, step, position)
        assert forwarded_positions(merging.forwarded()) == forwarded_positions(separate.forwarded())
        assert merging.counts(1) == separate.counts(1)


def test_the_times_for_the_purge_are_few_however_often_events_are_marked() -> None:
    marked = Progress(Coverage(), EVENTS)
    pause = progress.TIMES_MS // 10
    for position in range(1, EVENTS + 1):
        marked.mark_forwarded(one(position))
        marked.mark_processed(marked.forwarded(), pause * position, 1)
    assert len(marked.processed_times._times) <= 2 + EVENTS // 10
    for position in range(1, EVENTS + 1):
        purgeable = marked.processed_times.pop_until(pause * position)
        assert purgeable is None or purgeable <= position
    assert purgeable == EVENTS


def test_the_positions_of_the_latest_gaps_are_kept_and_all_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LOST_RANGES_MAX", FEW)
    marked = Progress(Coverage(), EVENTS)
    gaps = range(1, EVENTS + 1, 2)
    for position in gaps:
        marked.give_up(position, position)
    latest = gaps[-FEW]
    assert marked.not_lost(1, EVENTS) == [(1, latest - 1), *((lost + 1, lost + 1) for lost in gaps[-FEW:])]
    assert marked.counts(latest) == EventCounts(EVENTS - len(gaps), 0, 0, len(gaps))


def _do(each: Progress, step: str, position: int) -> None:
    if step == "return":
        each.return_batches(each.forwarded())
    elif step == "give up":
        each.give_up(position, min(position + 2, EVENTS))
    elif position not in forwarded_positions(each.forwarded()):
        each.mark_forwarded(one(position, leader_epoch=position // 20))
    each.written(each.pending())


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
