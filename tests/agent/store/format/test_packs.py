"""Packs that are sent again after some of their events were declared as gaps: only those are stored again."""

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent.store.port import Outcome
from contract.event import Event
from tests.agent.store.stores import HandClock, accept, crash_image, make_store

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
def test_whatever_is_given_up_is_stored_anew_and_nothing_else(
    pack: list[Event], before: list[Event], rounds: list[tuple[set[int], bool]]
) -> None:
    asyncio.run(_send_again(pack, before, rounds))


async def _send_again(pack: list[Event], before: list[Event], rounds: list[tuple[set[int], bool]]) -> None:
    clock = HandClock()
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "0"
        stack = make_store(folder, clock)
        store = await stack.__aenter__()
        at: dict[bytes, int] = {}
        if before:
            _learn(at, await accept(store, clock, *before), store._memory.end)
        outcome = await accept(store, clock, *pack, key=KEY)
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
            outcome = await accept(store, clock, *pack, key=KEY)
            assert outcome.accepted == len(lost)
            _learn(at, outcome, store._memory.end)
            assert (await accept(store, clock, *pack, key=KEY)).duplicates == len(pack)
        await stack.__aexit__(None, None, None)


def _learn(at: dict[bytes, int], outcome: Outcome, end: int) -> None:
    """Record the positions of the new events: the last that are stored."""
    position = end - outcome.accepted
    for fingerprint, new in zip(outcome.fingerprints, outcome.new, strict=True):
        if new:
            position += 1
            at[fingerprint] = position
