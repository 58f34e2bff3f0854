"""Measure the gateway's inputs, print the table, and write docs/benchmarks/agent.json."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import report
from benchmarks.agent import memory, rounds
from benchmarks.agent.memory import Memory
from benchmarks.agent.rounds import Measured
from benchmarks.report import Figure

BUILD = Path(__file__).parents[2] / "build"
RATE, CPU, LATENCY, MEMORY = "events/s", "us/event", "ms", "MB"


def main() -> None:
    """Run all measurements; the results of `--quick` are printed only."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.agent", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often each contender runs (default: 3)")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each run (default: 4)")
    parser.add_argument("--minutes", type=float, default=2.0, help="of the run for the memory (default: 2; 0: none)")
    parser.add_argument("--quick", action="store_true", help="one round of 2 s, memory for 15 s; nothing is kept")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds, options.minutes = 1, 2.0, 0.25
    BUILD.mkdir(exist_ok=True)
    with TemporaryDirectory(dir=BUILD, prefix="bench-") as name:
        measured = rounds.run(options.rounds, options.seconds, Path(name))
        held = memory.measure(options.minutes * 60, Path(name)) if options.minutes else None
    figures = [*_rows(measured), *(() if held is None else _memory(held, options.minutes))]
    settings = {"rounds": options.rounds, "seconds": options.seconds, "minutes": options.minutes}
    if options.quick:
        report.show("agent", figures)
    else:
        print(report.keep("agent", figures, **settings))


def _rows(measured: Measured) -> Sequence[Figure]:
    figures = []
    for row, results in measured.rows.items():
        rate = measured.median(row, lambda result: result.per_second)
        cpu = measured.median(row, lambda result: result.cpu_us)
        p50 = measured.median(row, lambda result: result.p50_ms)
        p99 = measured.median(row, lambda result: result.p99_ms)
        figures.append(_against(row, rate, RATE, _RATES.get(row), at_least=True, each=[r.per_second for r in results]))
        figures.append(_against(f"{row}: CPU", cpu, CPU, _CPUS.get(row), each=[r.cpu_us for r in results]))
        if p99:
            figures.append(_against(f"{row}: p99", p99, LATENCY, _P99S.get(row), p50=p50))
    return figures


_RATES = {
    "CoAP, 256 outstanding": 20_000.0,
    "CoAP, fsync 10 ms slower, 256": 8_000.0,
    "CoAP, 1,000/s beside 6,000 odd/s": 950.0,
    "MQTT QoS 1 through mosquitto": 8_000.0,
    "HTTP, packs of 100": 20_000.0,
}
_CPUS = {"CoAP, 256 outstanding": 33.0}
_P99S = {
    "CoAP, fsync 10 ms slower, 256": 60.0,
    "CoAP, half the full rate": 25.0,
    "CoAP, 1,000/s beside 6,000 odd/s": 300.0,
}
IDLE_MB, LOADED_MB = 56.0, 72.0


def _memory(held: Memory, minutes: float) -> Sequence[Figure]:
    name = f"memory, {minutes:g} min at {held.per_second:,.0f} events/s"
    return (
        _against("memory, idle", held.idle, MEMORY, IDLE_MB),
        _against(name, held.end, MEMORY, LOADED_MB, half_way=held.half, accepted=held.accepted),
    )


def _against(
    name: str, value: float, unit: str, goal: float | None, *, at_least: bool = False, **details: object
) -> Figure:
    if goal is None:
        return Figure(name, value, unit, details=details)
    reached = value >= goal if at_least else value <= goal
    return Figure(name, value, unit, f"{'>=' if at_least else '<='} {goal:,g}", reached, details)


if __name__ == "__main__":
    os.chdir(BUILD.parent)
    main()
