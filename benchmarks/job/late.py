"""Late traffic: its events are looked up in a table with years of data."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from statistics import mean

from benchmarks.cloud import topic
from benchmarks.cloud.runs import RUN_SECONDS_MAX, STATE_AGE_SECONDS, Bench, ending
from benchmarks.report import Figure, against
from contract.record import SharedDay
from simulators.certify.records import Record

DAY_MS = 86_400_000
TOPIC = "late"
GOALS = {SharedDay.TIME: ("within one day", 15_000), SharedDay.NONE: ("over all days", 10_000)}
GOAL_ROWS = 10_000_000
SMALL_ROWS, SMALL_BATCHES, SMALL_TURNS = 2_000, 10, 3
LATE_SHARE = 0.01
_DONE = re.compile(r"batch=(\d+) stage=done .* seconds=([\d.]+) ")
_LOOKED_UP = re.compile(r"batch=(\d+) stage=look-up rows=[1-9]")


def late_figures(bench: Bench, rows: int, records: int) -> list[Figure]:
    """Fill a table, then run the job on late records: those of one known day, and those of any day."""
    bench, folder = replace(bench, topic=TOPIC), bench.folder / TOPIC
    servers = bench.broker.bootstrap_servers
    bench.broker.create_topics(TOPIC, partitions=bench.partitions)
    yesterday = time.time_ns() // 1_000_000 - DAY_MS
    sent = topic.send(servers, TOPIC, topic.records(10, yesterday, seed=1))
    bench.job(folder, 0, records=sent)  # creates the table and finishes its first batch
    bench.spark_log("fill", rows, folder / "events")
    figures = []
    for shared, (where, goal) in GOALS.items():
        topic.send(servers, TOPIC, topic.records(records, yesterday, shared=shared))
        timing = bench.job(folder, sent, records=records)
        sent += records
        name = f"late traffic into {rows:,} rows, looked up {where}"
        details = {"cpu_seconds": timing.cpu_seconds, "records": records}
        only_full = goal if rows >= GOAL_ROWS else None
        figures.append(against(name, timing.rate, "records/s", only_full, at_least=True, **details))
    return [*figures, *_small_batches(bench, rows, sent)]


def _small_batches(bench: Bench, rows: int, receipted_before: int) -> list[Figure]:
    """Compare small batches of fresh records with those of which a share is late, in turns, on the same table."""
    folder = bench.folder / TOPIC
    bench.spark_log("age", STATE_AGE_SECONDS, folder / "events")
    process = bench.start_job(folder, "--max-offsets-per-trigger", str(SMALL_ROWS))
    receipted = receipted_before
    with ending(process):
        process.wait_for_log("stage=started", RUN_SECONDS_MAX)
        for turn in range(2 * (SMALL_TURNS + 1)):  # the first two warm up
            share = LATE_SHARE if turn % 2 else 0.0
            given = _mixed(SMALL_ROWS * SMALL_BATCHES, share)
            receipted += topic.send(bench.broker.bootstrap_servers, TOPIC, given)
            bench.wait_for(process, bench.group, receipted)
        log = process.log()
    looked_up = set(_LOOKED_UP.findall(log))
    batches = _DONE.findall(log)[2 * SMALL_BATCHES :]  # without the warm-up
    fresh = [float(seconds) for number, seconds in batches if number not in looked_up]
    late = [float(seconds) for number, seconds in batches if number in looked_up]
    of = f"batch of {SMALL_ROWS:,} records into {rows:,} rows"
    return [
        Figure(f"{of}, all fresh", mean(fresh), "s", details={"batches": len(fresh)}),
        Figure(f"{of}, {LATE_SHARE:.0%} late", mean(late), "s", details={"batches": len(late)}),
    ]


def _mixed(count: int, late_share: float) -> Iterator[Record]:
    """Yield records of now, and this share of yesterday's, in random order."""
    chance, now = random.Random(count), time.time_ns() // 1_000_000
    late = int(count * late_share)
    fresh, old = topic.records(count - late, now), topic.records(late, now - DAY_MS)
    order = [True] * late + [False] * (count - late)
    chance.shuffle(order)
    for is_late in order:
        yield next(old if is_late else fresh)
