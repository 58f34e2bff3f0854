"""Acknowledgements are sent in the order of receipt, each once, as soon as possible."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.mqtt.ack_order import AckOrder


@pytest.mark.guarantee(1)
@given(st.permutations(list(range(1, 9))), st.sets(st.integers(1, 8)))
def test_the_acknowledged_are_always_the_first_that_are_done(order: list[int], at_qos_0: set[int]) -> None:
    acknowledged: list[int] = []
    acks = AckOrder(acknowledged.append)
    opened = [acks.open(0 if number in at_qos_0 else number, size=number) for number in range(1, 9)]
    done: set[int] = set()
    for number in order:
        acks.finish(opened[number - 1])
        done.add(number)
        ordered = [one for one in range(1, 9) if one not in at_qos_0]
        due = next((first for first in ordered if first not in done), 9)
        assert acknowledged == [before for before in ordered if before < due]
        in_progress = [one for one in range(1, 9) if (one not in done if one in at_qos_0 else one >= due)]
        assert len(acks) == len(in_progress)
        assert acks.size == sum(in_progress)
    assert acks.acknowledged == len(acknowledged)
