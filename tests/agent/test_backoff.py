"""Waits increase, are bounded, and differ between gateways."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from agent.backoff import BACKOFF_SECONDS_FIRST, BACKOFF_SECONDS_MAX, Backoff


@given(seed=st.integers(), attempts=st.integers(1, 100))
def test_waits_are_bounded_and_start_small_after_a_success(seed: int, attempts: int) -> None:
    backoff = Backoff(Random(seed))

    waits = [backoff.next_seconds() for _ in range(attempts)]
    backoff.reset()

    assert all(BACKOFF_SECONDS_FIRST / 2 <= wait <= BACKOFF_SECONDS_MAX for wait in waits)
    assert backoff.next_seconds() <= BACKOFF_SECONDS_FIRST


def test_two_gateways_do_not_come_back_together() -> None:
    one, other = Backoff(Random(1)), Backoff(Random(2))

    assert [one.next_seconds() for _ in range(5)] != [other.next_seconds() for _ in range(5)]
