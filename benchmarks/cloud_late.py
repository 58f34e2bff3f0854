"""Late traffic: every event is looked up, in a table with years behind it."""

from __future__ import annotations

import shutil
import time

from benchmarks import cloud_topic
from benchmarks.cloud_runs import Bench
from benchmarks.report import Figure
from contract.record import Shared

DAY_MS = 86_400_000
GOALS = {Shared.TIME: ("within one day", 15_000), Shared.NONE: ("over all days", 10_000)}


def late_figures(bench: Bench, rows: int, records: int) -> list[Figure]:
    """Fill a table, then let the job look late records up in it: those of one day, and those that may be anywhere."""
    folder = bench.folder / "late"
    figures = []
    for shared, (where, goal) in GOALS.items():
        topic = f"late.{shared.value}"
        bench.broker.create_topics(topic, partitions=bench.partitions)
        yesterday = time.time_ns() // 1_000_000 - DAY_MS
        first = cloud_topic.send(
            bench.broker.bootstrap_servers, topic, cloud_topic.records(10, yesterday, shared=shared, seed=1)
        )
        place = folder / shared.value
        bench.job(place, 0, topic=topic, records=first)  # the table is made, and its first batch is over
        bench.spark("fill", batch=rows, table=place / "events")
        cloud_topic.send(bench.broker.bootstrap_servers, topic, cloud_topic.records(records, yesterday, shared=shared))
        timing = bench.job(place, first, topic=topic, records=records)
        shutil.rmtree(place)
        figures.append(
            Figure(
                f"late traffic into {rows:,} rows, looked up {where}",
                timing.rate,
                "records/s",
                f">= {goal:,} (10 million rows)",
                timing.rate >= goal if rows >= 10_000_000 else None,
                {"cpu_seconds": timing.cpu_seconds, "records": records},
            )
        )
    return figures
