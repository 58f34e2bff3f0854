"""The packed form: what is read is what was written, or an error."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.store.damage import DamagedEventError
from agent.store.packing import PackedEvent, pack, unpack, unpack_readable
from contract.record import Clock, Shared

EVENTS = st.builds(
    PackedEvent,
    position=st.just(0),
    fingerprint=st.binary(min_size=16, max_size=16).filter(any),
    tail=st.binary(max_size=60),
    clock=st.sampled_from(Clock),
    shared=st.sampled_from(Shared),
    bound=st.none() | st.integers(-(2**63), 2**63 - 1),
)


def numbered(events: list[PackedEvent], first: int) -> list[PackedEvent]:
    return [
        PackedEvent(first + place, event.fingerprint, event.tail, event.clock, event.shared, event.bound)
        for place, event in enumerate(events)
    ]


@given(st.lists(EVENTS, max_size=5), st.integers(1, 2**40))
def test_events_are_read_back_as_written(events: list[PackedEvent], first: int) -> None:
    placed = numbered(events, first)
    assert list(unpack(first, b"".join(map(pack, placed)))) == placed


@given(st.lists(EVENTS, min_size=1, max_size=3), st.data())
def test_no_flipped_bit_goes_unnoticed(events: list[PackedEvent], data: st.DataObject) -> None:
    blob = bytearray(b"".join(map(pack, numbered(events, 1))))
    bit = data.draw(st.integers(0, len(blob) * 8 - 1))
    blob[bit // 8] ^= 1 << bit % 8
    with pytest.raises(DamagedEventError):
        list(unpack(1, bytes(blob)))


@given(st.lists(EVENTS, min_size=1, max_size=3), st.data())
def test_a_cut_is_noticed(events: list[PackedEvent], data: st.DataObject) -> None:
    pieces = [pack(event) for event in numbered(events, 1)]
    ends = {0} | {sum(map(len, pieces[:count])) for count in range(1, len(pieces) + 1)}
    blob = b"".join(pieces)
    cut = data.draw(st.integers(0, len(blob)).filter(lambda at: at not in ends))
    with pytest.raises(DamagedEventError):
        list(unpack(1, blob[:cut]))


@given(EVENTS)
def test_an_event_at_another_position_is_not_taken_for_it(event: PackedEvent) -> None:
    (placed,) = numbered([event], 7)
    with pytest.raises(DamagedEventError):
        list(unpack(8, pack(placed)))


@given(st.lists(EVENTS, min_size=1, max_size=6), st.data())
def test_whatever_is_whole_is_read_around_the_damage(events: list[PackedEvent], data: st.DataObject) -> None:
    placed = numbered(events, 7)
    pieces = [pack(event) for event in placed]
    hit = data.draw(st.integers(0, len(pieces) - 1))
    broken = bytearray(pieces[hit])
    start = data.draw(st.integers(0, len(broken) - 1))
    end = data.draw(st.integers(start, len(broken)))
    broken[start] ^= 0xFF
    broken[start + 1 : end] = bytes(max(0, end - start - 1))
    pieces[hit] = bytes(broken)
    assert list(unpack_readable(7, len(events), b"".join(pieces))) == placed[:hit] + placed[hit + 1 :]
