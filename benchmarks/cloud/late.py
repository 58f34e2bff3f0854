"""Late traffic: every event is looked up in a table with years of data."""

from __future__ import annotations

import time

from benchmarks.cloud import topic
from benchmarks.cloud.runs import Bench
from benchmarks.report import Figure
from contract.record import Shared

DAY_MS = 86_400_000
TOPIC = "late"
GOALS = {Shared.TIME: ("within one day", 15_000), Shared.NONE: ("over all days", 10_000)}
GOAL_ROWS = 10_000_000


def late_figures(bench: Bench, rows: int, records: int) -> list[Figure]:
    """Fill a table, then run the job on late records: those of one known day, and those of any day."""
    folder = bench.folder / TOPIC
    servers = bench.broker.bootstrap_servers
    bench.broker.create_topics(TOPIC, partitions=bench.partitions)
    yesterday = time.time_ns() // 1_000_000 - DAY_MS
    sent = topic.send(servers, TOPIC, topic.records(10, yesterday, seed=1))
    bench.job(folder, 0, topic=TOPIC, records=sent)  # creates the table and finishes its first batch
    bench.spark("fill", batch=rows, table=folder / "events")
    figures = []
    for shared, (where, goal) in GOALS.items():
        topic.send(servers, TOPIC, topic.records(records, yesterday, shared=shared))
        timing = bench.job(folder, sent, topic=TOPIC, records=records)
        sent += records
        figures.append(
            Figure(
                f"late traffic into {rows:,} rows, looked up {where}",
                timing.rate,
                "records/s",
                f">= {goal:,} ({GOAL_ROWS / 1e6:.0f} million rows)",
                timing.rate >= goal if rows >= GOAL_ROWS else None,
                {"cpu_seconds": timing.cpu_seconds, "records": records},
            )
        )
    return figures
