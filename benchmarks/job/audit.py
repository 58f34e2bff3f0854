"""The cost of an audit, and of computing each record's fingerprint again."""

from __future__ import annotations

import time
from dataclasses import replace
from statistics import median

from benchmarks.cloud import topic
from benchmarks.cloud.runs import Bench
from benchmarks.report import Figure

TOPIC = "audit"
TURNS = 3
SHARES = (0.0, 1.0)


def audit_figures(bench: Bench, records: int) -> list[Figure]:
    """Have the job write a topic, and audit all of it from the beginning on, without and with `--verify 1` in turns."""
    bench, folder = replace(bench, topic=TOPIC), bench.folder / TOPIC
    bench.broker.create_topics(TOPIC, partitions=bench.partitions)
    sent = topic.send(bench.broker.bootstrap_servers, TOPIC, topic.records(records, time.time_ns() // 1_000_000))
    bench.job(folder, 0, records=sent)
    seconds: dict[float, list[float]] = {share: [] for share in SHARES}
    for turn in range(TURNS):
        for share in SHARES if turn % 2 == 0 else reversed(SHARES):
            seconds[share].append(bench.audit(folder, share))
    each = (median(seconds[1.0]) - median(seconds[0.0])) / sent * 1e6
    return [
        *(
            Figure(f"audit of {sent:,} records, --verify {share:g}", median(found), "s", details={"each": found})
            for share, found in seconds.items()
        ),
        Figure("what --verify adds to a record", each, "µs"),
    ]
