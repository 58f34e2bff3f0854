"""An agent that delivers at most once, and kills itself (SIGKILL) at chosen steps of a batch, again and again.

    python -m tests.agent.forward.modes.self_killing_agent CONFIGURATION KILLS SEED

The real agent runs in a fork of this process for each kill, so that it starts at once.
"""

import asyncio
import itertools
import logging
import os
import signal
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from agent.config import load
from agent.forward.modes import session
from agent.forward.modes.at_most_once import AtMostOnceSession, InDoubtRecord
from agent.service import serve
from agent.store.outbox import StoreOutbox

EVENTS_PER_BATCH = 20
BATCHES_MAX = 3
"""A process is killed within this number of batches."""
STEP_MS_MAX = 15
"""Maximum time after the beginning of a step at which a process is killed within it."""
LIFE_MS_MAX = 1_500


@dataclass(frozen=True, slots=True)
class Step:
    """When a process is killed: before or after a method, or soon after its beginning."""

    owner: type
    method: str
    moment: str
    once: bool = False
    """Whether it occurs once in a process, not once for each batch."""


STEPS: Mapping[str, Step | None] = {
    "before release": Step(StoreOutbox, "release", "before"),
    "in release": Step(StoreOutbox, "release", "soon"),
    "after release": Step(StoreOutbox, "release", "after"),
    "in send": Step(AtMostOnceSession, "_send", "soon"),
    "after send": Step(AtMostOnceSession, "_send", "after"),
    "before check": Step(AtMostOnceSession, "_check_connection", "before"),
    "after check": Step(AtMostOnceSession, "_check_connection", "after"),
    "before in-doubt note": Step(InDoubtRecord, "abandon", "before", once=True),
    "after in-doubt note": Step(InDoubtRecord, "abandon", "after", once=True),
    "any time": None,
}


def main() -> None:
    settings = load.load(Path(sys.argv[1]))
    kills, seed = int(sys.argv[2]), int(sys.argv[3])
    random = Random(seed)
    logging.basicConfig(level=logging.INFO)
    for number in range(kills):
        step, countdown = random.choice(tuple(STEPS)), random.randrange(BATCHES_MAX)
        child = os.fork()
        if child == 0:
            _arm(STEPS[step], countdown, random)
            _end_after_batches()
            asyncio.run(serve(settings))
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        print(f"life={number} step={step!r} signal={os.WTERMSIG(status)}", flush=True)
        if not os.WIFSIGNALED(status):
            sys.exit(f"life {number} ended by itself: status {status}")


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _arm(step: Step | None, countdown: int, random: Random) -> None:
    """Kill the agent at the step's n-th occurrence, or at any time."""
    vars(session)["BATCH_EVENTS_MAX"] = EVENTS_PER_BATCH
    if step is None:
        threading.Timer(random.uniform(0, LIFE_MS_MAX) / 1000, _die).start()
        return
    original = getattr(step.owner, step.method)
    occurrences = itertools.count()

    def mortal(*arguments: Any) -> Any:
        due = next(occurrences) == (0 if step.once else countdown)
        if due and step.moment == "before":
            _die()
        if due and step.moment == "soon":
            threading.Timer(random.uniform(0, STEP_MS_MAX) / 1000, _die).start()
        answer = original(*arguments)
        if due and step.moment == "after":
            _die()
        return answer

    setattr(step.owner, step.method, mortal)


def _end_after_batches() -> None:
    """Bound the batches of each process, so that one is left for each step of the later ones."""
    release = StoreOutbox.release
    occurrences = itertools.count()

    def bounded(*arguments: Any) -> bool:
        if next(occurrences) == BATCHES_MAX:
            _die()
        return release(*arguments)

    StoreOutbox.release = bounded  # type: ignore[assignment, method-assign]


if __name__ == "__main__":
    main()
