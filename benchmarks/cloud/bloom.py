"""The Bloom filter's true cost over the run's own topic; the plot goes into the documents."""

from __future__ import annotations

from benchmarks.cloud.runs import Bench
from benchmarks.report import FOLDER, Figure
from cloud import bloom
from cloud.bloom_plot import plot
from cloud.bloom_topic import read_topic

FILLINGS = 2
"""So many times a filter is filled over the topic."""


def bloom_figures(bench: Bench) -> list[Figure]:
    """Replay the topic in shadow."""
    recorded = read_topic(bench.broker.bootstrap_servers, bench.topic, {})
    folder = bench.folder / "bloom"
    folder.mkdir()
    found, _lost = bloom.replay(recorded, max(1, len(recorded.keys) // FILLINGS), folder)
    FOLDER.mkdir(parents=True, exist_ok=True)
    plot(found, len(recorded.keys), FOLDER / "bloom.svg")
    of = f"real events lost of {len(recorded.keys):,} records"
    return [
        Figure(
            f"{one.way} {'' if one.rate is None else f'{one.rate:.0e}'}: {of}",
            one.lost,
            "events",
            details={
                "bytes_per_key": one.bytes_per_key,
                "copies": one.copies,
                "look_ups": one.look_ups,
                "cpu_seconds": one.cpu_seconds,
            },
        )
        for one in found
    ]
