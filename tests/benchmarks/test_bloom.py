"""The filters equal a textbook implementation, without false negatives; only filters alone lose events."""

from __future__ import annotations

import random

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.bloom import RotatingFilters, hashes, shape


def keys(count: int, seed: int = 7) -> npt.NDArray[np.void]:
    return np.frombuffer(random.Random(seed).randbytes(16 * count), dtype="V16").copy()


class Textbook:
    """One key after the other: the textbook implementation."""

    def __init__(self, capacity: int, rate: float) -> None:
        self.capacity = capacity
        self.bits, self.functions = shape(capacity, rate / 2)
        self.before: set[int] = set()
        self.now: set[int] = set()
        self.filled = 0

    def see(self, key: bytes) -> bool:
        first, second = (int.from_bytes(key[at : at + 8], "little") for at in (0, 8))
        places = {((first + step * (second | 1)) % (1 << 64)) % self.bits for step in range(self.functions)}
        known_now, known = places <= self.now, places <= self.now or places <= self.before
        self.now |= places
        self.filled += not known_now
        if self.filled >= self.capacity:
            self.before, self.now, self.filled = self.now, set(), 0
        return known


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 60), min_size=1, max_size=200), st.integers(1, 40), st.sampled_from([0.5, 0.1, 0.01]))
def test_the_vectors_say_what_the_textbook_says(drawn: list[int], capacity: int, rate: float) -> None:
    chosen = keys(61)[np.array(drawn)]
    filters, textbook = RotatingFilters(capacity, rate), Textbook(capacity, rate)
    cut = len(chosen) // 2
    answers = np.concatenate([filters.add(hashes(chosen[:cut])), filters.add(hashes(chosen[cut:]))])
    assert answers.tolist() == [textbook.see(key.tobytes()) for key in chosen]
