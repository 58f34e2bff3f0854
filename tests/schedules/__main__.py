"""Run schedules: python -m tests.schedules [--count N] [--first SEED] [--mutant NAME] [--trace FILE]."""

import argparse
import os
import sys
import time
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.progress import track

from tests.schedules.mutants import MUTANTS
from tests.schedules.runs import run_here, run_many
from tests.schedules.world import Result


def main(arguments: list[str]) -> int:
    """Run the schedules; return 1 where one of them violates a guarantee."""
    parser = argparse.ArgumentParser(prog="python -m tests.schedules", description="Run schedules of the whole path.")
    parser.add_argument("--count", type=int, default=100, help="how many schedules (default: 100)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (default: 1)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at a time (default: cores)")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="run a faulty product, until it is found")
    parser.add_argument("--trace", type=Path, help="run only the first seed, and write its steps to this file")
    options = parser.parse_args(arguments)
    if options.trace is not None:
        return _trace(options.first, options.mutant, options.trace)
    return _run(range(options.first, options.first + options.count), options.jobs, options.mutant)


def _run(seeds: range, jobs: int, mutant: str | None) -> int:
    console = Console(stderr=True)
    began, counts = time.monotonic(), Counter[str]()
    results = run_many(seeds, jobs, mutant)
    for count, result in enumerate(track(results, "schedules", len(seeds), console=console), start=1):
        counts.update(with_lanes=result.lanes, exactly_once=result.exactly_once, steps=result.steps)
        counts.update(events=result.events, wrong=bool(result.wrong))
        if not result.wrong:
            continue
        print(_told(result, mutant), flush=True)
        if mutant is not None:
            print(f"{mutant}: found by schedule {count} of at most {len(seeds)}")
            results.close()
            return 1
    seconds = time.monotonic() - began
    totals = " ".join(f"{name}={count:d}" for name, count in counts.items())
    print(f"schedules={len(seeds)} {totals} seconds={seconds:.1f} per_second={len(seeds) / seconds:.1f}")
    return 1 if counts["wrong"] else 0


def _trace(seed: int, mutant: str | None, file: Path) -> int:
    with file.open("w") as lines:
        result = run_here(seed, mutant, lambda line: print(line, file=lines))
    print(_told(result, mutant) if result.wrong else f"seed={seed} wrong=0")
    print(f"digest={result.digest} steps={result.steps} trace={file}")
    sys.stdout.flush()
    os._exit(1 if result.wrong else 0)


def _told(result: Result, mutant: str | None) -> str:
    """Return what is wrong, and the command that repeats it."""
    of = "" if mutant is None else f" --mutant {mutant}"
    lines = [f"seed {result.seed}: {', '.join(result.faults) or 'no fault'}", *result.wrong]
    return "\n  ".join(
        (*lines, f"python -m tests.schedules --first {result.seed}{of} --trace schedule-{result.seed}.txt")
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
