"""Run schedules: python -m tests.schedules [--count N] [--first SEED] [--mutant NAME] [--trace FILE].

Each has a process of its own that ends without unwinding what was killed in it.
"""

import argparse
import gc
import json
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import track

from tests.schedules import replaced
from tests.schedules.mutants import MUTANTS
from tests.schedules.world import Result, World

MEMORY_FILES = Path("/dev/shm")  # a flush of the machine's own disk proves nothing, and takes time
SECONDS_MAX = 300
"""Of a schedule, after which it counts as hanging."""
WRONG_MAX = 5
CHARACTERS_MAX = 300


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


def run_here(seed: int, mutant: str | None, keep: Callable[[str], None] | None = None) -> Result:
    """Run one schedule in this process, which must end after it by `os._exit`."""
    logging.disable(logging.CRITICAL)
    gc.disable()  # what was killed stays as it is
    if mutant is not None:
        MUTANTS[mutant]()
    folder = Path(tempfile.mkdtemp(prefix="oncegate-schedule-", dir=MEMORY_FILES if MEMORY_FILES.is_dir() else None))
    try:
        return World(seed, folder, pytest.MonkeyPatch(), keep).run()
    finally:
        shutil.rmtree(folder)


def run_many(seeds: Iterable[int], jobs: int, mutant: str | None = None) -> Generator[Result]:
    """Run schedules in several processes at a time; yield their results as they end."""
    waiting = iter(seeds)
    running: dict[int, tuple[int, int]] = {}
    """Seed and pipe by process."""
    replaced.places()
    try:
        while True:
            while len(running) < jobs and (seed := next(waiting, None)) is not None:
                process, pipe = _fork(seed, mutant)
                running[process] = (seed, pipe)
            if not running:
                return
            process, status = os.wait()
            seed, pipe = running.pop(process)
            with os.fdopen(pipe, "rb") as file:
                text = file.read()
            yield _result_of(seed, text, status)
    finally:
        for process in running:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)


def _fork(seed: int, mutant: str | None) -> tuple[int, int]:
    reading, writing = os.pipe()
    process = os.fork()
    if process:
        os.close(writing)
        return process, reading
    status = 1
    with suppress(BaseException):
        signal.alarm(SECONDS_MAX)
        try:
            result = run_here(seed, mutant)
        except Exception as error:  # noqa: BLE001  # a fault of the schedule's own world, reported as such
            result = Result(seed, "", 0, 0.0, 0, (), (f"the world failed: {error!r}",))
        short = {"wrong": tuple(text[:CHARACTERS_MAX] for text in result.wrong[:WRONG_MAX])}
        os.write(writing, json.dumps(asdict(result) | short).encode())
        status = 0
    os._exit(status)


def _result_of(seed: int, text: bytes, status: int) -> Result:
    if not text:
        return Result(seed, "", 0, 0.0, 0, (), (f"the process ended with status {status}",))
    fields = json.loads(text)
    return Result(**{**fields, "faults": tuple(fields["faults"]), "wrong": tuple(fields["wrong"])})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
