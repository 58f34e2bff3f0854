"""The filters equal a textbook implementation, without false negatives; only filters alone lose events."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import bloom
from benchmarks.bloom import ExactIndex, RotatingFilters, hashes, shape


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


def test_a_key_is_remembered_for_a_filling() -> None:
    chosen = keys(300)
    filters = RotatingFilters(100, 1e-6)
    filters.add(hashes(chosen[:150]))
    assert filters.add(hashes(chosen[50:150])).all()


def test_the_rate_is_about_what_was_asked_for() -> None:
    filters = RotatingFilters(20_000, 1e-2)
    filters.add(hashes(keys(39_999, seed=1)))
    wrong = filters.add(hashes(keys(1000, seed=3)))
    assert 0.001 < wrong.mean() < 0.02


def test_only_filters_alone_lose_real_events(tmp_path: Path) -> None:
    real = keys(4000)
    costs = {(one.method, one.rate): one for one in bloom.replay(np.concatenate([real, real[:400]]), 5000, tmp_path)}
    assert costs["exact", None].duplicates == 400
    for rate in bloom.RATES:
        alone, both = costs["bloom", rate], costs["bloom+exact", rate]
        assert alone.duplicates == 400 + alone.lost
        assert (both.duplicates, both.lost, both.look_ups) == (400, 0, alone.duplicates)
    assert costs["bloom", 1e-2].lost > costs["bloom", 1e-9].lost == 0


def test_the_exact_index_is_exact(tmp_path: Path) -> None:
    chosen = keys(100)
    with ExactIndex(tmp_path / "x.db") as index:
        assert index.add(np.concatenate([chosen, chosen[:30]])) == 30
        assert 16 < index.bytes_per_key() < 200
