"""What the store knows for a while only: proofs, bounded in time and in number."""

from hypothesis import given
from hypothesis import strategies as st

from agent.store.fingerprints.transient import RETRANSMISSION_KEYS_MAX, RetransmissionKeys

LIFETIME_MS, COUNT_MAX = 100, 5


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=60))
def test_a_proof_counts_for_its_lifetime_as_long_as_it_is_among_the_latest(steps: list[tuple[int, int]]) -> None:
    proofs = RetransmissionKeys(LIFETIME_MS, COUNT_MAX)
    told: dict[bytes, tuple[int, int]] = {}
    now = 0
    for position, (passed, name) in enumerate(steps, 1):
        now += passed
        proof = bytes((name,))
        told.pop(proof, None)
        told[proof] = (position, now)
        proofs.remember(proof, position, now)
        assert len(proofs) <= COUNT_MAX
        latest = list(told)[-COUNT_MAX:]
        for known, (first, since) in told.items():
            counts = known in latest and now - since <= LIFETIME_MS
            assert proofs.position(known, now, LIFETIME_MS) == (first if counts else None)


def test_a_flood_of_proofs_forgets_the_oldest_alone() -> None:
    proofs = RetransmissionKeys()
    for number in range(RETRANSMISSION_KEYS_MAX + 10):
        proofs.remember(number.to_bytes(16, "big"), number + 1, 0)
    assert len(proofs) == RETRANSMISSION_KEYS_MAX
    assert [proofs.position(number.to_bytes(16, "big"), 1) for number in (9, 10)] == [None, 11]
