"""The event store's writes, memory, start, drain to Kafka, and purge, in the compiled form."""

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from agent import runtime
from benchmarks import report, store_drain, store_purge, store_telegraf, store_writes
from benchmarks.agent import programs
from benchmarks.report import Figure, against, middle
from benchmarks.rounds import Contender, Rounds
from benchmarks.store_drain import Drain
from benchmarks.store_fill import events, fill
from benchmarks.store_writes import Written
from simulators.services.kafka.broker import Broker

CARD_BYTES = 32e9
CYCLES = 1_000
AMPLIFICATION = 4
"""Assumptions about a card: 1,000 writes per cell, and a write amplification of four."""
YEAR_SECONDS = 365.25 * 86_400
RATE = 5
REMEMBERED, DRAINED, PURGED, ROUNDS = 1_000_000, 300_000, 1_000_000, 3
SIZES = (1, 10, 100)
LONG = 140_000
SINGLES = 500
"""Events in commits of 100, enough to seal a segment; and commits of 1 and of 10, enough for rounds of the log."""
MEGABYTE = 1e6
GROWTH_MAX, ACK_ROUNDS = 1.2, 40
OURS, TELEGRAFS = "the store's drain", "Telegraf's disk buffer"
RATE_AGAINST_TELEGRAF, CPU_AGAINST_TELEGRAF = 1.6, 0.6
ACK_P99_MS_MAX, ACK_GROWTH_MAX = 30.0, 1.5
"""Goals: the drain against Telegraf's disk buffer, and the acks meanwhile."""


@dataclass(slots=True)
class StoreBench:
    """One run: its sizes, and the folder of its stores."""

    folder: Path
    remembered: int
    """Fingerprints of the smaller store; the larger has ten times as many, and all of their events waiting."""
    drained: int
    """Events that a broker receives in each round."""
    rounds: int
    purged: int
    """Single events of a full store that is purged."""
    failed: list[str] = field(default_factory=list)
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


def growth(bench: StoreBench, full: Path, bytes_when_full: float) -> Iterator[Figure]:
    """Measure the effect of a backlog on the latency of an ack and on the written bytes."""
    empty = bench.folder / "empty"
    report.progress("acks in an empty store and in a full one in turns")
    first, second = asyncio.run(store_writes.ack_p99(empty, full, events(bench.source()), ACK_ROUNDS, 50))
    yield against("ack p99 of an empty store", first * 1000, "ms")
    yield against(f"ack p99 with {10 * bench.remembered:,} waiting", second * 1000, "ms")
    yield against("growth of ack p99", second / first, "times", GROWTH_MAX)
    shutil.rmtree(empty)
    before = written(bench, empty, SIZES[-1]).process
    yield against("growth of bytes per event", bytes_when_full / before, "times", GROWTH_MAX, empty=before)
    shutil.rmtree(empty)


def drain(bench: StoreBench) -> Iterator[Figure]:
    """Drain equal backlogs from the store and from Telegraf's disk buffer, in turns, into one broker."""
    folder, python = bench.folder / "drain", programs.compiled()
    rounds = Rounds[Drain]()
    with bench.store("drain/filled", bench.drained, bench.drained) as filled, Broker(folder / "kafka") as broker:
        broker.create_topics(store_drain.TOPIC)

        def store() -> Iterator[tuple[str, Drain]]:
            place = folder / "agent"
            shutil.copytree(filled, place / "state")
            os.sync()
            yield OURS, store_drain.drain(python, broker, place, bench.drained)
            shutil.rmtree(place)

        contenders: dict[str, Contender[Drain]] = {OURS: store}
        if programs.telegraf() is not None:
            buffer = store_telegraf.fill(folder / "telegraf", broker, bench.drained)
            contenders[TELEGRAFS] = lambda: [
                (TELEGRAFS, store_telegraf.drain(folder / "telegraf", broker, buffer, bench.drained))
            ]
        store_drain.warm(broker)
        rounds.run(contenders, bench.rounds)
    bench.failed += rounds.failed
    yield from _drain_figures(rounds)


def _drain_figures(rounds: Rounds[Drain]) -> Iterator[Figure]:
    for row, found in rounds.rows.items():
        yield middle(f"{row}: rate", [one.per_second for one in found.values()], "1/s")
        yield middle(f"{row}: CPU per event", [one.cpu_us for one in found.values()], "µs")
    if not (ours := [*rounds.rows.get(OURS, {}).values()]):
        return
    meanwhile = [one.ack_p99_ms for one in ours]
    yield middle("ack p99 meanwhile", meanwhile, "ms", arriving=[one.arriving_per_second for one in ours])
    yield against("ack p99 meanwhile, in the worst round", max(meanwhile), "ms", ACK_P99_MS_MAX)
    yield middle("ack p99 afterwards", [one.ack_p99_ms_afterwards for one in ours], "ms")
    yield middle("ack p99 meanwhile against afterwards", [one.ack_growth for one in ours], "times", ACK_GROWTH_MAX)
    for what, value, goal in (
        ("rate", lambda one: one.per_second, RATE_AGAINST_TELEGRAF),
        ("CPU", lambda one: one.cpu_us, CPU_AGAINST_TELEGRAF),
    ):
        name = f"the drain against Telegraf's: {what}"
        yield from rounds.compared(name, OURS, TELEGRAFS, value, goal, at_least=what == "rate")


def writing(bench: StoreBench) -> Iterator[Figure]:
    """Measure writes, memory and starts of a store, and of one with ten times as many fingerprints and a backlog."""
    large = 10 * bench.remembered
    with bench.store("few", bench.remembered, 0) as store:
        yield from starts(bench, store, bench.remembered)
        few = {size: written(bench, store, size) for size in SIZES}
    with bench.store("many", large, large) as store:
        yield from starts(bench, store, large)
        many = {size: written(bench, store, size) for size in SIZES}
        yield from growth(bench, store, many[SIZES[-1]].process)
    yield from writes(bench, few, many)


def purge(bench: StoreBench) -> Iterable[Figure]:
    """Measure the acks while a full store of single events is purged on a card, and the start after a kill."""
    report.progress(f"filling a store: {bench.purged:,} single events, and purging them at 15 MB/s")
    return store_purge.purge(bench.folder / "purge", bench.purged)


PARTS: Mapping[str, Callable[[StoreBench], Iterable[Figure]]] = {
    "speed": speed,
    "writes": writing,
    "drain": drain,
    "purge": purge,
}


def main() -> int:
    """Run the chosen measurements on the compiled form; exit status 1 where one failed."""
    parser = report.parser("store", __doc__, PARTS, ROUNDS)
    parser.add_argument("--folder", type=Path, help="where the stores are made, on the disk to be measured")
    text = "single events of the store that is purged; 4,900,000 take 1 GiB (default: %(default)s)"
    parser.add_argument("--purged", type=int, default=PURGED, metavar="N", help=text)
    given = report.parse(parser)
    programs.run_compiled("benchmarks.store")
    runtime.return_freed_memory()
    runtime.tune()  # as the service does
    with tempfile.TemporaryDirectory(prefix="bench-store-", dir=given.folder) as folder:
        share = 20 if given.quick else 1
        remembered, drained, purged = (count // share for count in (REMEMBERED, DRAINED, given.purged))
        bench = StoreBench(Path(folder), remembered, drained, given.rounds, purged)
        figures = [figure for part in PARTS if part in given.only for figure in PARTS[part](bench)]
    endurance = f"{CYCLES} cycles, amplification {AMPLIFICATION}"
    return report.conclude("store", figures, given, bench.failed, rounds=given.rounds, endurance=endurance)


if __name__ == "__main__":
    sys.exit(main())
