"""Bloom filters over fingerprints, which need no further hashing."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.bool_]
Hashes = tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]

GENERATIONS = 2


def hashes(keys: npt.NDArray[np.void]) -> Hashes:
    """Split fingerprints of 16 bytes into two hashes."""
    halves = keys.view(np.uint64).reshape(-1, 2)
    return halves[:, 0].copy(), halves[:, 1] | np.uint64(1)


def shape(keys: int, rate: float) -> tuple[int, int]:
    """Return the numbers of bits, m = -n ln p / (ln 2)^2, and of hash functions, k = m/n ln 2, for n keys at rate p."""
    bits = math.ceil(-keys * math.log(rate) / math.log(2) ** 2)
    return bits, max(1, round(bits / keys * math.log(2)))


def bytes_per_key(rate: float) -> float:
    """Return the memory per key that is certain to be remembered: two filters for the capacity of one."""
    return shape(1_000_000, rate / GENERATIONS)[0] / 1_000_000 / 8 * GENERATIONS


class RotatingFilters:
    """Two filters, of which one is filled while the one before it is still searched.

    So each key is kept at least until another `keys_per_filter` keys have arrived. Each filter is designed for half
    the rate, since either may return a false positive.
    """

    def __init__(self, keys_per_filter: int, rate: float) -> None:
        self._capacity = keys_per_filter
        self._bits, self._functions = shape(keys_per_filter, rate / GENERATIONS)
        self._before = np.zeros(self._bits, bool)
        self._now = np.zeros(self._bits, bool)
        self._filled = 0

    def add(self, keys: Hashes) -> Bits:
        """Add keys in order, and return for each whether the filters reported it as known."""
        first, second = keys
        answers = []
        at = 0
        while at < len(first):
            take = min(len(first) - at, self._capacity - self._filled)
            answers.append(self._add((first[at : at + take], second[at : at + take])))
            at += take
        return np.concatenate(answers) if answers else np.zeros(0, bool)

    def _add(self, keys: Hashes) -> Bits:
        places = self._places(keys)
        known_before = self._before[places].all(axis=1)
        # A bit counts as set if it was set before, or by an earlier one of these keys: as if added one by one.
        distinct, first_use, inverse = np.unique(places, return_index=True, return_inverse=True)
        first_user = first_use // self._functions
        is_set = self._now[places] | (first_user[inverse.reshape(places.shape)] < np.arange(len(places))[:, np.newaxis])
        known_now = is_set.all(axis=1)
        self._now[distinct] = True
        self._filled += int((~known_now).sum())
        if self._filled >= self._capacity:
            self._before, self._now, self._filled = self._now, np.zeros(self._bits, bool), 0
        return np.asarray(known_now | known_before)

    def _places(self, keys: Hashes) -> npt.NDArray[np.int64]:
        first, second = (half[:, np.newaxis] for half in keys)
        step = np.arange(self._functions, dtype=np.uint64)[np.newaxis, :]
        return np.asarray((first + step * second) % np.uint64(self._bits), np.int64)
