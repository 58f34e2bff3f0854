"""Replay a topic through Bloom filters, and list their costs and the events that they would have lost.

    oncegate-cloud bloom --bootstrap-servers localhost:9092 --output ./bloom

(requires numpy and matplotlib, in the extra `sim`). It reads the fingerprints of all records of the topic, in Kafka's
order, and detects duplicates by rotating Bloom filters alone, by an exact index, and by Bloom filters in front of the
exact index, at false-positive rates from 1e-2 to 1e-9. The output folder gets `figures.json`, a plot `figures.svg`, and
`lost.csv` with each real event that the filters alone would have dropped, with partition and offset.

Exit status: 0 success; 1 a failure, which the log names; 2 wrong usage.
"""

from __future__ import annotations

import argparse
import csv
import json
import logging
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from confluent_kafka import KafkaException

from cloud import kafka_options
from cloud.bloom_shadow.figures import Figures
from cloud.bloom_shadow.filter import RotatingFilters, bytes_per_key, hashes
from cloud.bloom_shadow.index import ExactIndex
from cloud.bloom_shadow.topic import Recorded, read_topic
from cloud.runtime.program_log import log_to_stderr
from contract.topics import EVENTS

logger = logging.getLogger("cloud.bloom")

RATES = tuple(10.0**-power for power in range(2, 10))
CHUNK_KEYS = 100_000

T = TypeVar("T")


def replay(recorded: Recorded, keys_per_filter: int, folder: Path) -> tuple[list[Figures], list[tuple[float, int]]]:
    """Return the figures of all methods, and the events that filters alone would have lost, as rate and index."""
    first_ones = first_occurrences(recorded.keys)
    figures, lost = [], []
    with ExactIndex(folder / "exact.db") as index:
        started = time.process_time()
        duplicates = index.add(recorded.keys)
        seconds = time.process_time() - started
        figures.append(Figures("exact", None, index.bytes_per_key(), duplicates, 0, len(recorded.keys), seconds))
    for rate in RATES:
        hits, seconds = _timed(partial(_filtered, recorded.keys, keys_per_filter, rate))
        wrong = np.flatnonzero(hits & first_ones)
        lost += [(rate, int(place)) for place in wrong]
        size = bytes_per_key(rate)
        figures.append(Figures("bloom", rate, size, int(hits.sum()), len(wrong), 0, seconds))
        with ExactIndex(folder / f"exact-{rate:.0e}.db") as index:
            duplicates, behind = _timed(partial(index.add_behind_filter, recorded.keys, hits))
            both = size + index.bytes_per_key()
            figures.append(Figures("bloom+exact", rate, both, duplicates, 0, int(hits.sum()), seconds + behind))
        logger.info("rate=%.0e lost=%d look_ups=%d", rate, len(wrong), int(hits.sum()))
    return figures, lost


def first_occurrences(keys: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    """Return which places hold a key for the first time."""
    _, first = np.unique(keys, return_index=True)
    is_first = np.zeros(len(keys), bool)
    is_first[first] = True
    return is_first


def _filtered(keys: npt.NDArray[np.void], keys_per_filter: int, rate: float) -> npt.NDArray[np.bool_]:
    filters = RotatingFilters(keys_per_filter, rate)
    chunks = [filters.add(hashes(keys[at : at + CHUNK_KEYS])) for at in range(0, len(keys), CHUNK_KEYS)]
    return np.concatenate(chunks) if chunks else np.zeros(0, bool)


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    started = time.process_time()
    done = work()
    return done, time.process_time() - started


def main(arguments: Sequence[str]) -> int:
    """Read the topic, replay it, and write the results; return the exit status."""
    given = parse(arguments)
    log_to_stderr()
    given.output.mkdir(parents=True, exist_ok=True)
    try:
        recorded = read_topic(given.bootstrap_servers, given.topic, kafka_options.properties(given))
    except KafkaException as error:
        logger.error("topic=%s stage=failed error=%r", given.topic, str(error))
        return 1
    logger.info("records=%d", len(recorded.keys))
    figures, lost = replay(recorded, given.keys_per_filter, given.output)
    write_results(recorded, figures, lost, given.output)
    return 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the arguments; wrong usage ends the process with status 2 and a message."""
    options = parser()
    given = options.parse_args(arguments)
    if given.keys_per_filter < 1:
        options.error("argument --keys-per-filter: at least 1")
    return given


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = argparse.ArgumentParser(
        prog="oncegate-cloud bloom",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--bootstrap-servers", required=True, metavar="HOST:PORT,…")
    add("--topic", default=EVENTS, help="default: %(default)s")
    add("--output", type=Path, required=True, metavar="FOLDER", help="created if absent")
    add("--keys-per-filter", type=int, default=1_000_000, metavar="N", help="capacity of a filter (%(default)s)")
    kafka_options.add_options(parser, "librdkafka")
    return parser


def write_results(
    recorded: Recorded, figures: Sequence[Figures], lost: Sequence[tuple[float, int]], folder: Path
) -> None:
    """Write the figures, the list of lost events, and the plot; print the figures."""
    from cloud.bloom_shadow.plot import plot

    text = {"records": len(recorded.keys), "figures": [asdict(one) for one in figures]}
    (folder / "figures.json").write_text(json.dumps(text, indent=2) + "\n")
    with (folder / "lost.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("rate", "fingerprint", "partition", "offset"))
        for rate, place in lost:
            mark = recorded.keys[place].tobytes().hex()
            writer.writerow((f"{rate:.0e}", mark, recorded.partitions[place], recorded.offsets[place]))
    plot(figures, len(recorded.keys), folder / "figures.svg")
    for one in figures:
        made_for = "" if one.rate is None else f"{one.rate:.0e}"
        print(
            f"{one.method:12} {made_for:>6}: {one.bytes_per_key:6.1f} bytes/key, {one.duplicates:,} duplicates, "
            f"{one.lost:,} real events lost, {one.look_ups:,} look-ups, {one.cpu_seconds:.1f} s CPU"
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
