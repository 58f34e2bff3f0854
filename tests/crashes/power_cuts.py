"""The whole agent on a disk that forgets: cuts after each flush and at random moments, over several lives of one card.

    python -m tests.crashes.power_cuts [--lives 3] [--cuts 200] [--seed N] [--lanes]

With --lanes the gateway has a lane for alarms, and requests are divided between two stores. Each life runs on what a
cut of the life before has left. After each cut the agent starts on the surviving files, and the sensor resends what is
not acked. The counts are printed as JSON.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import shutil
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

from agent import clock
from agent.store.files import swap
from agent.store.layout import FILE_NAME
from tests.crashes import mutants, oracle
from tests.crashes.disk_steps import Step
from tests.crashes.gateway import SUSPICION, CrashingGateway, Hook, nothing, work_folder
from tests.crashes.oracle import Contents
from tests.crashes.recorded_disk import contents_of, note_acked, recorded, steps_of
from tests.crashes.sensor import Sensor
from tests.crashes.surviving_files import Survivors, moments_of, survivors

SALVAGED = 0.5
"""The share of the lives that begin with a salvage."""
EVENTS_PER_LIFE = 1_000
"""More than the load has: the distance of the ids of two lives."""


class Card:
    """One card, whose gateway loses its power again and again."""

    def __init__(self, folder: Path, seed: int, mutant: str = "", *, lanes: bool = False) -> None:
        self._mutant: Hook = getattr(mutants, mutant) if mutant else nothing
        self._folder = folder
        self._random = random.Random(seed)
        self._boots = itertools.count(1)
        for name in ("recorded", "plain", "card"):
            (folder / name).mkdir()
        self._card = folder / "card"
        self._recorded = CrashingGateway(folder / "recorded", lanes=lanes)
        self._plain = CrashingGateway(folder / "plain", lanes=lanes)
        self._sensors: list[Sensor] = []
        self.outcomes: Counter[str] = Counter()
        self.steps: Counter[str] = Counter()

    def live(self, cuts: int) -> list[str]:
        """Run one life, and judge its cuts; return what is wrong. The next life begins with one of the cuts."""
        for store in oracle.stores_with(self._card / FILE_NAME):
            if store.exists() and self._random.random() < SALVAGED:
                swap.suspect(store, SUSPICION)
        before = contents_of(self._card)
        self._sensors.append(Sensor(self._recorded.ports, len(self._sensors) * EVENTS_PER_LIFE + 1))
        steps = self._record()
        self.steps.update(type(step).__name__ for step in steps)
        contents = self._contents()
        moments = moments_of(steps, cuts, self._random)
        following = self._random.randrange(len(moments))
        wrong: list[str] = []
        for number, left in enumerate(survivors(steps, before, moments, self._random)):
            found = self._judge(left, contents)
            wrong += [f"life {len(self._sensors)}, step {left.moment} of {len(steps)}: {one}" for one in found]
            if number == following:
                chosen = left
        self._set_acked(chosen.acked)
        shutil.rmtree(self._card)
        self._card.mkdir()
        chosen.write_to(self._card)
        return wrong

    def _record(self) -> list[Step]:
        mount, record = self._recorded.state, self._folder / "steps"

        def note() -> None:
            note_acked(mount, self._acked())

        with recorded(mount, self._card, record):
            note()
            hangs = self._recorded.live(self._sensors, self._boot(), note)
        if hangs or self._acked() != {number for sensor in self._sensors for number in sensor.texts}:
            raise RuntimeError(f"the load fails without a cut: {hangs}\n{self._recorded.log()}")
        return steps_of(record)

    def _contents(self) -> Contents:
        """Return the contents of the card at the end of a life."""
        self._plain.replace(self._card)
        return oracle.read(self._plain.store)

    def _judge(self, left: Survivors, contents: Contents) -> list[str]:
        self._plain.replace(None)
        self._plain.state.mkdir()
        left.write_to(self._plain.state)
        sensors = [Sensor(self._plain.ports, min(sensor.texts)) for sensor in self._sensors]
        for sensor in sensors:
            sensor.acked = set(left.acked & sensor.texts.keys())
        wrong = self._plain.recover(sensors, self._boot())
        texts = {number: text for sensor in sensors for number, text in sensor.texts.items()}
        acked_then = replace(contents, events=tuple(event for event in contents.events if event[0] in left.acked))
        wrong += oracle.faults(self._plain.store, acked_then, texts, left.acked)
        self.outcomes["wrong" if wrong else "alarm" if self._plain.alarms() else "whole"] += 1
        if wrong:
            wrong.append(
                f"files { ({path: len(content) for path, content in left.files.items()}) }\n{self._plain.log()}"
            )
        return wrong

    def _boot(self) -> Hook:
        """Return a hook after which the process sees another boot of the machine."""
        name = f"boot-{next(self._boots)}"

        def boot() -> None:
            self._mutant()
            clock.SystemClock.boot = lambda self: name  # type: ignore[method-assign]

        return boot

    def _acked(self) -> set[int]:
        return {number for sensor in self._sensors for number in sensor.acked}

    def _set_acked(self, acked: frozenset[int]) -> None:
        for sensor in self._sensors:
            sensor.acked = set(acked & sensor.texts.keys())


def run(lives: int, cuts: int, seed: int, mutant: str, *, lanes: bool) -> tuple[dict[str, object], list[str]]:
    """Return the counts of some lives with so many cuts each at most, and what is wrong."""
    with work_folder() as folder:
        card = Card(folder, seed, mutant, lanes=lanes)
        wrong = [one for _ in range(lives) for one in card.live(cuts)]
        counts = {"seed": seed, "lives": lives, "steps": dict(card.steps), "cuts": dict(card.outcomes)}
        return counts, wrong


def main() -> None:
    """Run the lives, print the counts, and exit with 1 where anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.crashes.power_cuts", description=__doc__)
    parser.add_argument("--lives", type=int, default=3)
    parser.add_argument("--cuts", type=int, default=200, help="of each life, at most (default: 200)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--mutant", default="", help="a function of tests/crashes/mutants.py")
    parser.add_argument("--lanes", action="store_true", help="with a lane for alarms")
    arguments = parser.parse_args()
    counts, wrong = run(arguments.lives, arguments.cuts, arguments.seed, arguments.mutant, lanes=arguments.lanes)
    print("\n".join(wrong), file=sys.stderr)
    print(json.dumps(counts, indent=1))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
