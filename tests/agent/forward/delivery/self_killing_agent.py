"""The agent as a process that kills itself (SIGKILL) at chosen steps of a batch, again and again.

    python -m tests.agent.forward.delivery.self_killing_agent CONFIGURATION KILLS SEED

The real agent runs in a fork of this process for each kill, so that it starts at once.
"""

from __future__ import annotations

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
from agent.forward.delivery import reading
from agent.forward.delivery.at_most_once import AtMostOnceSession, _InDoubtRecord
from agent.forward.delivery.exactly_once import TransactionalSession
from agent.forward.delivery.transactional import TransactionalProducer
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


TRANSACTION: Mapping[str, Step | None] = {
    "before intent": Step(TransactionalSession, "_intend", "before"),
    "after intent": Step(TransactionalSession, "_intend", "after"),
    "before commit": Step(TransactionalProducer, "commit", "before"),
    "in commit": Step(TransactionalProducer, "commit", "soon"),
    "before mark": Step(StoreOutbox, "mark_forwarded", "before"),
    "after mark": Step(StoreOutbox, "mark_forwarded", "after"),
    "any time": None,
}
RELEASE: Mapping[str, Step | None] = {
    "before release": Step(StoreOutbox, "release", "before"),
    "in release": Step(StoreOutbox, "release", "soon"),
    "after release": Step(StoreOutbox, "release", "after"),
    "in send": Step(AtMostOnceSession, "_send", "soon"),
    "after send": Step(AtMostOnceSession, "_send", "after"),
    "before check": Step(AtMostOnceSession, "_check_connection", "before"),
    "after check": Step(AtMostOnceSession, "_check_connection", "after"),
    "before in-doubt note": Step(_InDoubtRecord, "abandon", "before", once=True),
    "after in-doubt note": Step(_InDoubtRecord, "abandon", "after", once=True),
    "any time": None,
}
STEPS = {"exactly-once": TRANSACTION, "at-most-once": RELEASE}
BATCH = {"exactly-once": (TransactionalSession, "_intend"), "at-most-once": (StoreOutbox, "release")}
"""The first call of a batch."""


def main() -> None:
    """Run until killed."""
    settings = load.load(Path(sys.argv[1]))
    kills, seed = int(sys.argv[2]), int(sys.argv[3])
    random = Random(seed)
    logging.basicConfig(level=logging.INFO)
    steps = STEPS[settings.kafka.delivery]
    for number in range(kills):
        step, countdown = random.choice(tuple(steps)), random.randrange(BATCHES_MAX)
        child = os.fork()
        if child == 0:
            _arm(steps[step], countdown, random)
            _end_after_batches(*BATCH[settings.kafka.delivery])
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
    vars(reading)["BATCH_EVENTS_MAX"] = EVENTS_PER_BATCH
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


def _end_after_batches(owner: type, method: str) -> None:
    """Bound the batches of each process, so that one is left for each step of the later ones."""
    original = getattr(owner, method)
    occurrences = itertools.count()

    def bounded(*arguments: Any) -> Any:
        if next(occurrences) == BATCHES_MAX:
            _die()
        return original(*arguments)

    setattr(owner, method, bounded)


if __name__ == "__main__":
    main()
