"""The response cache, and the budget of the slow path."""

from __future__ import annotations

from agent.coap.exchange import ResponseCache


def test_what_has_outlived_its_lifetime_is_let_go() -> None:
    cache = ResponseCache(lifetime_seconds=10, answers_max=5)
    cache.put(b"a", 0.0, b"answer")
    cache.put(b"b", 1.0, b"answer")
    cache.put(b"c", 10.5, b"answer")
    assert len(cache) == 2


def test_the_oldest_answer_makes_room() -> None:
    cache = ResponseCache(lifetime_seconds=10, answers_max=2)
    for retransmission_key in (b"a", b"b", b"c"):
        cache.put(retransmission_key, 0.0, retransmission_key)
    assert [cache.get(retransmission_key, 0.0) for retransmission_key in (b"a", b"b", b"c")] == [None, b"b", b"c"]
