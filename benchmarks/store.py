"""`python -m benchmarks.store`: the event store's writes, memory, start, drain to Kafka, and purge, compiled."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from agent import runtime
from benchmarks import report, store_drain, store_purge, store_telegraf, store_writes
from benchmarks.agent import programs
from benchmarks.report import Figure, against, middle
from benchmarks.store_drain import StoreDrain
from benchmarks.store_fill import events, fill
from benchmarks.store_telegraf import TelegrafDrain
from benchmarks.store_writes import Written
from simulators.services.kafka.broker import Broker

CARD_BYTES = 32e9
CYCLES = 1_000
AMPLIFICATION = 4
"""Assumptions about a card: 1,000 writes per cell, and a write amplification of four."""
YEAR_SECONDS = 365.25 * 86_400
RATE = 5
REMEMBERED, BACKLOG, DRAINED, ROUNDS = 1_000_000, 10_000_000, 300_000, 5
PURGED = 4_900_000
"""Events in commits of one that take 1 GiB."""
SIZES = (1, 10, 100)
LONG = 300_000
SINGLES = 500
"""Events in commits of 100, enough to seal a segment; and commits of 1 and of 10, enough for rounds of the log."""
MEGABYTE = 1e6
GROWTH_MAX = 1.2
RATE_AGAINST_TELEGRAF, CPU_AGAINST_TELEGRAF = 1.6, 0.6
ACK_P99_MS_MAX, ACK_GROWTH_MAX = 30.0, 1.5
"""Goals: the drain against Telegraf's disk buffer, and the acks meanwhile."""


@dataclass(slots=True)
class StoreBench:
    """One run: its sizes, and the folder of its stores."""

    folder: Path
    remembered: int
    """Fingerprints of the smaller store; the larger has ten times as many."""
    backlog: int
    """Events that wait in a full store."""
    drained: int
    """Events that a broker receives in each round."""
    rounds: int
    purged: int
    """Single events of a full store that is purged."""
    seed: int = 0

    @contextmanager
    def store(self, name: str, remembered: int, waiting: int) -> Iterator[Path]:
        """Create a temporary store, which may take gigabytes."""
        folder = self.folder / name
        report.progress(f"filling a store: {remembered:,} fingerprints, {waiting:,} events waiting")
        fill(folder, remembered, waiting)
        try:
            yield folder
        finally:
            shutil.rmtree(folder)

    def source(self) -> int:
        """Return a seed for new events."""
        self.seed += 1
        return self.seed


def written(bench: StoreBench, folder: Path, size: int) -> Written:
    """Measure bytes per event for one commit size; commits of 100 run long enough to seal a segment."""
    deliveries = max(min(bench.remembered, LONG) // size, SINGLES) if size == SIZES[-1] else SINGLES
    report.progress(f"writing {deliveries * size:,} events in commits of {size}")
    return asyncio.run(store_writes.bytes_per_event(folder, events(bench.source()), size, deliveries))


def writes(bench: StoreBench, few: dict[int, Written], many: dict[int, Written]) -> Iterator[Figure]:
    """Measure the written bytes, and the resulting life of a card."""
    for size in SIZES:
        for count, found in ((bench.remembered, few[size]), (10 * bench.remembered, many[size])):
            name = f"bytes written per event, {size} per commit, {count:,} remembered"
            yield against(name, found.process, "bytes", 500 if size == SIZES[-1] else None, disk=found.disk)
    growth = many[SIZES[-1]].process / few[SIZES[-1]].process
    yield against("the same with ten times as many", growth, "times", GROWTH_MAX)
    for size in SIZES:
        years = CARD_BYTES * CYCLES / AMPLIFICATION / (many[size].process * RATE * YEAR_SECONDS)
        wait = f", {size / RATE * 1000:,.0f} ms of commit_delay_ms_max" if size > 1 else ""
        yield against(f"life of a 32 GB card at {RATE} events/s, {size} per commit{wait}", years, "years")


def speed(bench: StoreBench) -> Iterable[Figure]:
    """Measure durable events per second."""
    report.progress("durable events a second, and raw append with fdatasync in turns")
    (bench.folder / "speed").mkdir()
    source = events(bench.source())
    return asyncio.run(store_writes.speed(bench.folder / "speed", source, 100, bench.remembered // 5_000, 7))


def starts(bench: StoreBench, folder: Path, remembered: int) -> Iterator[Figure]:
    """Measure a start, and the memory of the fingerprints beyond a start on an empty store."""
    report.progress("starting on it in a process of its own")
    empty = bench.folder / "nothing"
    base = store_writes.measure_start(empty, bench.source())
    shutil.rmtree(empty)
    found = store_writes.measure_start(folder, bench.source())
    per_million = (found.memory_bytes - base.memory_bytes) / remembered * 1e6 / MEGABYTE
    text = f"{remembered:,} fingerprints"
    yield against(f"memory per million, {text}", per_million, "MB", 20, index=found.index_bytes)
    yield against(f"start to the first ack, {text}", found.seconds, "s", 5)


def growth(bench: StoreBench) -> Iterator[Figure]:
    """Measure the effect of a backlog on the latency of an ack and on the written bytes."""
    empty = bench.folder / "empty"
    with bench.store("waiting", bench.backlog, bench.backlog) as full:
        report.progress("acks in an empty store and in a full one in turns")
        rounds = 40 if bench.backlog >= 1_000_000 else 10
        first, second = asyncio.run(store_writes.ack_p99(empty, full, events(bench.source()), rounds, 50))
        yield against("ack p99 of an empty store", first * 1000, "ms")
        yield against(f"ack p99 with {bench.backlog:,} waiting", second * 1000, "ms")
        yield against("growth of ack p99", second / first, "times", GROWTH_MAX)
        shutil.rmtree(empty)
        before, after = written(bench, empty, 100), written(bench, full, 100)
        ratio = after.process / before.process
        yield against("growth of bytes per event", ratio, "times", GROWTH_MAX, empty=before.process, full=after.process)


def drain(bench: StoreBench) -> Iterable[Figure]:
    """Drain equal backlogs from the store and from Telegraf's disk buffer, in turns, into one broker."""
    folder, python, has_telegraf = bench.folder / "drain", programs.compiled(), programs.telegraf() is not None
    ours: list[StoreDrain] = []
    theirs: list[TelegrafDrain] = []
    with bench.store("drain/filled", bench.drained, bench.drained) as filled, Broker(folder / "kafka") as broker:
        broker.create_topics(store_drain.TOPIC)

        def store() -> None:
            report.progress("draining the store, 1,000 events/s arriving")
            place = folder / "agent"
            shutil.copytree(filled, place / "state")
            os.sync()
            ours.append(store_drain.drain(python, broker, place, bench.drained))
            shutil.rmtree(place)

        contenders = [store]
        if has_telegraf:
            buffer = store_telegraf.fill(folder / "telegraf", broker, bench.drained)

            def telegraf() -> None:
                report.progress("draining Telegraf's disk buffer, nothing arriving")
                theirs.append(store_telegraf.drain(folder / "telegraf", broker, buffer, bench.drained))

            contenders.append(telegraf)
        store_drain.warm(broker)
        for number in range(bench.rounds):
            for contender in contenders if number % 2 == 0 else reversed(contenders):
                contender()
    return [*_drain_figures(bench, ours), *(_telegraf_figures(ours, theirs) if theirs else ())]


def _drain_figures(bench: StoreBench, ours: Sequence[StoreDrain]) -> list[Figure]:
    meanwhile = [one.ack_p99_seconds * 1000 for one in ours]
    afterwards = [one.ack_p99_seconds_afterwards * 1000 for one in ours]
    ratios = [during / after for during, after in zip(meanwhile, afterwards, strict=True)]
    arriving = [one.ingested_per_second for one in ours]
    worst = max(meanwhile)
    return [
        middle(f"drain of {bench.drained:,} to a broker", [one.events_per_second for one in ours], "1/s"),
        middle("CPU per event of the drain", [one.cpu_us for one in ours], "µs"),
        middle("ack p99 meanwhile", meanwhile, "ms", arriving=arriving),
        against("ack p99 meanwhile, in the worst round", worst, "ms", ACK_P99_MS_MAX),
        middle("ack p99 afterwards", afterwards, "ms"),
        middle("ack p99 meanwhile against afterwards", ratios, "times", ACK_GROWTH_MAX),
    ]


def _telegraf_figures(ours: Sequence[StoreDrain], theirs: Sequence[TelegrafDrain]) -> list[Figure]:
    pairs = list(zip(ours, theirs, strict=True))
    rates = [our.events_per_second / their.metrics_per_second for our, their in pairs]
    cpus = [our.cpu_us / their.cpu_us for our, their in pairs]
    return [
        middle(
            "Telegraf's disk buffer, drain", [one.metrics_per_second for one in theirs], "1/s",
            batch=store_telegraf.BATCH,
        ),
        middle("CPU per metric of it", [one.cpu_us for one in theirs], "µs"),
        middle("the drain against Telegraf's: rate", rates, "times", RATE_AGAINST_TELEGRAF, at_least=True),
        middle("the drain against Telegraf's: CPU", cpus, "times", CPU_AGAINST_TELEGRAF),
    ]  # fmt: skip


def writing(bench: StoreBench) -> Iterator[Figure]:
    """Measure writes, memory and starts of a store and of one with ten times as many fingerprints."""
    with bench.store("few", bench.remembered, 0) as store:
        yield from starts(bench, store, bench.remembered)
        few = {size: written(bench, store, size) for size in SIZES}
    with bench.store("many", 10 * bench.remembered, bench.remembered) as store:
        yield from starts(bench, store, 10 * bench.remembered)
        many = {size: written(bench, store, size) for size in SIZES}
    yield from writes(bench, few, many)


def purge(bench: StoreBench) -> Iterable[Figure]:
    """Measure the acks while a full store of single events is purged on a card, and the start after a kill."""
    report.progress(f"filling a store: {bench.purged:,} single events, and purging them at 15 MB/s")
    return store_purge.purge(bench.folder / "purge", bench.purged)


PARTS: Mapping[str, Callable[[StoreBench], Iterable[Figure]]] = {
    "speed": speed,
    "writes": writing,
    "growth": growth,
    "drain": drain,
    "purge": purge,
}


def main() -> None:
    """Run the chosen measurements on the compiled form, print the table, write the JSON."""
    parser = report.parser("store", __doc__, PARTS)
    parser.add_argument("--folder", type=Path, help="where the stores are made, on the disk to be measured")
    arguments = parser.parse_args()
    programs.run_compiled("benchmarks.store")
    runtime.return_freed_memory()
    runtime.tune()  # as the service does
    with tempfile.TemporaryDirectory(prefix="bench-store-", dir=arguments.folder) as folder:
        share = 20 if arguments.quick else 1
        counts = (count // share for count in (REMEMBERED, BACKLOG, DRAINED, PURGED))
        remembered, backlog, drained, purged = counts
        bench = StoreBench(Path(folder), remembered, backlog, drained, 1 if arguments.quick else ROUNDS, purged)
        figures = [figure for part in PARTS if part in arguments.only for figure in PARTS[part](bench)]
    is_kept = not arguments.quick and set(arguments.only) == set(PARTS)
    endurance = f"{CYCLES} cycles, amplification {AMPLIFICATION}"
    report.conclude("store", figures, is_kept=is_kept, endurance=endurance)


if __name__ == "__main__":
    main()
