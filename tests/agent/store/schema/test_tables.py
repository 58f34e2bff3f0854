"""The store's statements on epochs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from agent.store.schema.tables import EpochStart, epoch_of

COUNT, EVENTS = 10_000, 3
"""How many epochs, and how many events each has."""


class CountedEpochs(Sequence[tuple[int, EpochStart]]):
    """Epochs that count how often one is read."""

    def __init__(self) -> None:
        self.reads = 0

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, at: Any) -> Any:
        self.reads += 1
        return 2 + at * EVENTS, EpochStart(f"epoch {at}", "boot", 0, 0, trusted=True, service_ms=0)


@pytest.mark.parametrize(
    ("position", "expected"), [(1, None), (2, 0), (4, 0), (5, 1), (EVENTS * COUNT, COUNT - 1), (1 << 40, COUNT - 1)]
)
def test_the_epoch_of_a_position_is_found_among_many_in_a_few_steps(position: int, expected: int | None) -> None:
    epochs = CountedEpochs()
    found = epoch_of(epochs, position)
    assert (found and found.epoch) == (None if expected is None else f"epoch {expected}")
    assert epochs.reads < 20
