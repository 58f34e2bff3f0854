"""Acknowledgements leave in the order of receipt, each once, as soon as they may."""

from hypothesis import given
from hypothesis import strategies as st

from agent.mqtt.turns import Turns


@given(st.permutations(list(range(1, 9))), st.sets(st.integers(1, 8)))
def test_the_acknowledged_are_always_the_first_that_are_done(order: list[int], at_qos_0: set[int]) -> None:
    acknowledged: list[int] = []
    turns = Turns(acknowledged.append)
    opened = [turns.open(0 if number in at_qos_0 else number, size=number) for number in range(1, 9)]
    done: set[int] = set()
    for number in order:
        turns.finish(opened[number - 1])
        done.add(number)
        due = next((first for first in range(1, 9) if first not in done), 9)
        assert acknowledged == [before for before in range(1, due) if before not in at_qos_0]
        assert len(turns) == 9 - due
        assert turns.size == sum(range(due, 9))
    assert turns.acknowledged == len(acknowledged)
