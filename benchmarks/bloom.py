"""What Bloom filters would cost and lose in place of an exact index of fingerprints, or in front of one."""

from __future__ import annotations

import argparse
import math
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self, TypeVar

import numpy as np
import numpy.typing as npt

from benchmarks import report
from benchmarks.report import Figure

Keys = npt.NDArray[np.void]
Bits = npt.NDArray[np.bool_]
Hashes = tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]
T = TypeVar("T")

RATES = tuple(10.0**-power for power in range(2, 10))
RECORDS, DUPLICATE_SHARE = 2_000_000, 0.1
KEYS_PER_FILTER = 1_000_000
CHUNK_KEYS = 100_000
GENERATIONS = 2
_SEEN = "SELECT 1 FROM seen WHERE key = ?"
_KEEP = "INSERT OR IGNORE INTO seen VALUES (?)"


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs and losses of one method of detecting duplicates."""

    method: str
    rate: float | None
    """The false-positive rate that the filters are designed for; None for the exact index."""
    bytes_per_key: float
    duplicates: int
    """Records that were identified as duplicates."""
    lost: int
    """Real events among them."""
    look_ups: int
    """Look-ups in the exact index."""
    cpu_seconds: float


def main() -> None:
    """Replay records through each method, print the costs and write the JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bloom", description=__doc__)
    parser.add_argument("--records", type=int, default=RECORDS, help=f"default: {RECORDS}")
    records = parser.parse_args().records
    with TemporaryDirectory() as folder:
        costs = replay(recorded(records), KEYS_PER_FILTER, Path(folder))
    figures = []
    for one in costs:
        name = one.method if one.rate is None else f"{one.method}, {one.rate:.0e}"
        details = {"bytes_per_key": one.bytes_per_key, "look_ups": one.look_ups, "cpu_seconds": one.cpu_seconds}
        figures.append(Figure(name, one.lost, "real events lost", details=details))
    report.conclude("bloom", figures, records=records)


def recorded(records: int) -> Keys:
    """Return random keys, of which a tenth repeats one of the latest ten thousand or so."""
    random = np.random.default_rng(7)
    keys = np.frombuffer(random.bytes(16 * records), dtype="V16").copy()
    repeats = np.flatnonzero(random.random(records) < DUPLICATE_SHARE)
    keys[repeats] = keys[np.maximum(repeats - random.integers(1, 10_000, len(repeats)), 0)]
    return keys


def replay(keys: Keys, keys_per_filter: int, folder: Path) -> list[Costs]:
    """Return the costs of the exact index, and for each rate of filters alone and in front of the index."""
    first_ones = first_occurrences(keys)
    with ExactIndex(folder / "exact.db") as index:
        duplicates, seconds = _timed(partial(index.add, keys))
        costs = [Costs("exact", None, index.bytes_per_key(), duplicates, 0, len(keys), seconds)]
    for rate in RATES:
        hits, seconds = _timed(partial(_filtered, keys, keys_per_filter, rate))
        size, found = bytes_per_key(rate), int(hits.sum())
        costs.append(Costs("bloom", rate, size, found, int((hits & first_ones).sum()), 0, seconds))
        with ExactIndex(folder / f"exact-{rate:.0e}.db") as index:
            duplicates, behind = _timed(partial(index.add_behind_filter, keys, hits))
            both = size + index.bytes_per_key()
            costs.append(Costs("bloom+exact", rate, both, duplicates, 0, found, seconds + behind))
        report.progress(f"rate {rate:.0e}")
    return costs


def first_occurrences(keys: Keys) -> Bits:
    """Return which places hold a key for the first time."""
    _, first = np.unique(keys, return_index=True)
    is_first = np.zeros(len(keys), bool)
    is_first[first] = True
    return is_first


def _filtered(keys: Keys, keys_per_filter: int, rate: float) -> Bits:
    filters = RotatingFilters(keys_per_filter, rate)
    chunks = [filters.add(hashes(keys[at : at + CHUNK_KEYS])) for at in range(0, len(keys), CHUNK_KEYS)]
    return np.concatenate(chunks)


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    started = time.process_time()
    done = work()
    return done, time.process_time() - started


def hashes(keys: Keys) -> Hashes:
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


class ExactIndex:
    """Fingerprints in one table, written in one transaction, so that flushes are not measured."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __enter__(self) -> Self:
        self._file.unlink(missing_ok=True)
        self._connection = sqlite3.connect(self._file, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=OFF")
        self._connection.execute("CREATE TABLE seen (key BLOB PRIMARY KEY) WITHOUT ROWID")
        self._connection.execute("BEGIN")
        self._keys = 0
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._file.unlink(missing_ok=True)

    def add(self, keys: Keys) -> int:
        """Look up and add every key; return the number of those that were known."""
        return self.add_behind_filter(keys, np.ones(len(keys), bool))

    def add_behind_filter(self, keys: Keys, hits: Bits) -> int:
        """Look up only the filter's hits, and add all keys; return the number of those that were known."""
        execute = self._connection.execute
        known = 0
        for key, is_hit in zip(keys.tolist(), hits.tolist(), strict=True):
            if is_hit and execute(_SEEN, (key,)).fetchone() is not None:
                known += 1
            else:
                self._keys += execute(_KEEP, (key,)).rowcount
        return known

    def bytes_per_key(self) -> float:
        """Return the file's size divided by the number of keys."""
        (pages,), (size,) = (self._connection.execute(f"PRAGMA page_{what}").fetchone() for what in ("count", "size"))
        return float(pages * size / max(1, self._keys))


if __name__ == "__main__":
    main()
