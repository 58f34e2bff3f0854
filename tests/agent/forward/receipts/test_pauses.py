"""Gateways that start together do not poll together."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate, islice
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from agent.forward.receipts.poller import JITTER, pauses

SECONDS = 30.0
GATEWAYS = 3_000


@given(st.integers())
def test_the_first_pause_ends_within_the_interval_and_the_others_near_it(seed: int) -> None:
    first, *others = islice(pauses(Random(seed), SECONDS), 20)
    assert 0 <= first <= SECONDS
    assert all(SECONDS * (1 - JITTER) <= pause <= SECONDS * (1 + JITTER) for pause in others)


def test_the_polls_of_gateways_that_start_together_are_spread_over_the_interval() -> None:
    """Given gateways that start at one moment, no second has twice as many polls as the mean."""
    polls = Counter(
        int(at) for number in range(GATEWAYS) for at in islice(accumulate(pauses(Random(number), SECONDS)), 10)
    )
    mean = GATEWAYS / SECONDS
    assert max(polls[second] for second in range(int(8 * SECONDS))) < 2 * mean
