"""Runs schedules, each in a process of its own that ends without unwinding what was killed in it."""

import gc
import json
import logging
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.schedules import replaced
from tests.schedules.mutants import MUTANTS
from tests.schedules.world import Result, World

MEMORY_FILES = Path("/dev/shm")  # a flush of the machine's own disk proves nothing, and takes time
SECONDS_MAX = 300
"""Of a schedule, after which it counts as hanging."""
WRONG_MAX = 5
CHARACTERS_MAX = 300


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
