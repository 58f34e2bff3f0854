"""The packed form: what was written is read back, or an error; of packs, lost events alone are stored again."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent.store.errors import DamagedEventError
from agent.store.format.packing import (
    BLOCK_EVENTS,
    EVENTS_MIN,
    MARK,
    compress,
    expand,
    pack,
    unpack,
    unpack_readable,
)
from agent.store.port import Outcome, StoredEvent
from contract.event import Event
from contract.record import ClockTrust, SharedDay
from tests.agent.store.stores import HandClock, accept, crash_image, make_store

EVENTS = st.builds(
    StoredEvent,
    position=st.just(0),
    fingerprint=st.binary(min_size=16, max_size=16).filter(any),
    tail=st.binary(max_size=60),
    clock=st.sampled_from(ClockTrust),
    shared=st.sampled_from(SharedDay),
    bound=st.none() | st.integers(-(2**63), 2**63 - 1),
)


def numbered(events: list[StoredEvent], first: int) -> list[StoredEvent]:
    return [
        StoredEvent(first + place, event.fingerprint, event.tail, event.clock, event.shared, event.bound)
        for place, event in enumerate(events)
    ]


@pytest.mark.guarantee(7)
@given(st.lists(EVENTS, min_size=1, max_size=3), st.data())
def test_no_flipped_bit_goes_unnoticed(events: list[StoredEvent], data: st.DataObject) -> None:
    blob = bytearray(b"".join(map(pack, numbered(events, 1))))
    bit = data.draw(st.integers(0, len(blob) * 8 - 1))
    blob[bit // 8] ^= 1 << bit % 8
    with pytest.raises(DamagedEventError):
        list(unpack(1, bytes(blob)))


@given(st.lists(EVENTS, min_size=1, max_size=3), st.data())
def test_a_cut_is_noticed(events: list[StoredEvent], data: st.DataObject) -> None:
    pieces = [pack(event) for event in numbered(events, 1)]
    ends = {0} | {sum(map(len, pieces[:count])) for count in range(1, len(pieces) + 1)}
    blob = b"".join(pieces)
    cut = data.draw(st.integers(0, len(blob)).filter(lambda at: at not in ends))
    with pytest.raises(DamagedEventError):
        list(unpack(1, blob[:cut]))


@given(EVENTS)
def test_an_event_at_another_position_is_not_taken_for_it(event: StoredEvent) -> None:
    (placed,) = numbered([event], 7)
    with pytest.raises(DamagedEventError):
        list(unpack(8, pack(placed)))


@pytest.mark.guarantee(7)
@given(st.lists(EVENTS, min_size=1, max_size=6), st.data())
def test_whatever_is_whole_is_read_around_the_damage(events: list[StoredEvent], data: st.DataObject) -> None:
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


@given(st.lists(EVENTS, max_size=3 * EVENTS_MIN), st.integers(1, 2**40))
def test_what_is_compressed_is_read_back_as_written(events: list[StoredEvent], first: int) -> None:
    placed = numbered(events, first)
    pieces = [pack(event) for event in placed]
    blob = compress(pieces)
    assert blob.startswith(MARK) == (len(events) >= EVENTS_MIN)
    assert expand(blob) == b"".join(pieces)
    assert list(unpack(first, blob)) == list(unpack_readable(first, len(events), blob)) == placed


def readings(count: int) -> list[StoredEvent]:
    tails = [b'"id":%d,"t":%d' % (place, place % 9) for place in range(count)]
    return [
        StoredEvent(place, bytes([1 + place % 255]) * 16, tail, ClockTrust.TRUSTED, SharedDay.TIME, None)
        for place, tail in enumerate(tails, 1)
    ]


def test_events_that_are_alike_take_a_third() -> None:
    alike = b'"device":"urn:dev:mac:00158d0001a2b3c4","type":"reading","via":"coap","received":1763706000000,'
    pieces = [pack(event)[:33] + alike + event.tail for event in readings(100)]
    assert len(compress(pieces)) < len(b"".join(pieces)) / 3


@pytest.mark.guarantee(7)
@given(start=st.integers(0, 10**4), length=st.integers(1, 40), filling=st.sampled_from([b"\0", b"\xff", b"?"]))
def test_damage_in_a_compressed_commit_costs_its_blocks_and_invents_nothing(
    start: int, length: int, filling: bytes
) -> None:
    placed = readings(4 * BLOCK_EVENTS)
    blob = bytearray(compress([pack(event) for event in placed]))
    start %= len(blob)
    end = min(start + length, len(blob))
    blob[start:end] = filling * (end - start)
    found = list(unpack_readable(1, len(placed), bytes(blob)))
    assert found == [placed[event.position - 1] for event in found]
    assert len(found) >= len(placed) - 2 * BLOCK_EVENTS
    assert sorted(event.position for event in found) == [event.position for event in found]


def test_a_mark_that_stands_in_a_plain_commit_by_chance_changes_nothing() -> None:
    events = numbered([StoredEvent(0, MARK * 4, MARK, ClockTrust.TRUSTED, SharedDay.TIME, None)] * 2, 1)
    blob = b"".join(map(pack, events))
    assert list(unpack(1, blob)) == list(unpack_readable(1, 2, blob)) == events
    assert list(unpack_readable(1, 2, blob[:3] + b"?" + blob[4:])) == events[1:]


def test_a_commit_whose_first_checksum_is_the_mark_by_chance_is_read_back() -> None:
    tail = b'"device":"urn:dev:mac:00158d0001a2b3c4"'
    piece = MARK + len(tail).to_bytes(4, "little") + bytes(25) + tail
    for pieces in ([piece], [piece, piece]):
        assert expand(compress(pieces)) == b"".join(pieces)


KEY = b"p" * 16
RESEND_SECONDS = 20
"""Several resends stay within the lifetime of a retransmission key."""


def nameless(number: int) -> Event:
    return Event("d", data={"n": number})


events = st.one_of(st.integers(1, 3).map(nameless), st.integers(1, 3).map(lambda number: Event("d", id=number)))
rounds = st.lists(st.tuples(st.sets(st.integers(0, 5)), st.booleans()), min_size=1, max_size=3)


@pytest.mark.guarantee(7)
@given(st.lists(events, min_size=1, max_size=6), st.lists(events, max_size=2), rounds)
@example([nameless(1), Event("d", id=1), nameless(2)], [Event("d", id=1)], [({0, 2}, True), ({1, 2}, False)])
@settings(max_examples=25)
async def test_whatever_is_given_up_is_stored_anew_and_nothing_else(
    pack: list[Event], before: list[Event], rounds: list[tuple[set[int], bool]]
) -> None:
    clock = HandClock()
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "0"
        stack = make_store(folder, clock)
        store = await stack.__aenter__()
        at: dict[bytes, int] = {}
        if before:
            _learn(at, await accept(store, *before), store._memory.end)
        outcome = await accept(store, *pack, key=KEY)
        _learn(at, outcome, store._memory.end)
        for number, (places, killed) in enumerate(rounds, 1):
            lost = {at[outcome.fingerprints[place]] for place in places if place < len(pack)}
            for position in sorted(lost):
                store.outbox.give_up(position, "test")
            if killed:
                image = crash_image(folder, Path(root) / str(number))
                await stack.__aexit__(None, None, None)
                folder, stack = image, make_store(image, clock)
                store = await stack.__aenter__()
            clock.pass_seconds(RESEND_SECONDS)
            outcome = await accept(store, *pack, key=KEY)
            assert outcome.accepted == len(lost)
            _learn(at, outcome, store._memory.end)
            assert (await accept(store, *pack, key=KEY)).duplicates == len(pack)
        await stack.__aexit__(None, None, None)


def _learn(at: dict[bytes, int], outcome: Outcome, end: int) -> None:
    """Record the positions of the new events: the last that are stored."""
    position = end - outcome.accepted
    for fingerprint, new in zip(outcome.fingerprints, outcome.new, strict=True):
        if new:
            position += 1
            at[fingerprint] = position
