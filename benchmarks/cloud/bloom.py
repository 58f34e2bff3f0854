"""The cost of a Bloom filter on the run's own topic."""

from __future__ import annotations

from benchmarks.cloud.runs import Bench
from benchmarks.report import Figure
from cloud import bloom
from cloud.bloom_shadow.topic import Recorded, read_topic

RECORDS_MAX = 500_000
"""Largest number of replayed records; docs/bloom.md has a longer replay."""
FILLINGS = 2
"""How often a filter is filled over the topic."""


def bloom_figures(bench: Bench) -> list[Figure]:
    """Replay the topic in shadow mode."""
    whole = read_topic(bench.broker.bootstrap_servers, bench.topic, {})
    part = slice(RECORDS_MAX)
    recorded = Recorded(whole.keys[part], whole.partitions[part], whole.offsets[part])
    folder = bench.folder / "bloom"
    folder.mkdir()
    found, _lost = bloom.replay(recorded, max(1, len(recorded.keys) // FILLINGS), folder)
    of = f"real events lost of {len(recorded.keys):,} records"
    return [
        Figure(
            f"{one.method} {'' if one.rate is None else f'{one.rate:.0e}'}: {of}",
            one.lost,
            "events",
            details={
                "bytes_per_key": one.bytes_per_key,
                "duplicates": one.duplicates,
                "look_ups": one.look_ups,
                "cpu_seconds": one.cpu_seconds,
            },
        )
        for one in found
    ]
