"""Retransmission keys, which are bounded in time and in number."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.store.fingerprints.transient import RETRANSMISSION_KEYS_MAX, RetransmissionKeys

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
        assert len(keys) <= COUNT_MAX
        latest = list(told)[-COUNT_MAX:]
        for known, (first, since) in told.items():
            counts = known in latest and now - since <= LIFETIME_MS
            assert keys.position(known, now, LIFETIME_MS) == (first if counts else None)


def test_a_flood_of_keys_forgets_the_oldest_alone() -> None:
    keys = RetransmissionKeys()
    for number in range(RETRANSMISSION_KEYS_MAX + 10):
        keys.remember(number.to_bytes(16, "big"), number + 1, 0)
    assert len(keys) == RETRANSMISSION_KEYS_MAX
    assert [keys.position(number.to_bytes(16, "big"), 1) for number in (9, 10)] == [None, 11]
