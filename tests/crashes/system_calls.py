"""Every system call by which the agent changes anything fails once, in each way in which it can.

    python -m tests.crashes.system_calls [--scenario killed] [--part 1/48] [--call pwrite] [--object events.db-wal]

After each fault the agent starts again, and the sensor resends what is not acked. The runs and their outcomes are
printed as JSON, with the calls counted by kind and object.
"""

import argparse
import ctypes
import errno
import json
import os
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from agent.store.files import swap
from agent.store.read.events import Epochs, read_packed
from agent.store.recovery.verify import verify
from agent.store.schema import database
from contract.event import Label
from simulators.services.install import programs
from tests.crashes import mutants
from tests.crashes.gateway import SUSPICION, CrashingGateway, Hook, nothing, work_folder
from tests.crashes.sensor import DEVICE, Sensor

SOURCE = Path(__file__).with_suffix(".c")
_KILL, _TORN, _SHORT, _FAIL = 1, 2, 3, 4
FIRST_ID, FIRST_ID_BEFORE = 1, 1_001
SCENARIOS = ("new", "killed", "salvage")
"""Without a store, with that of an agent that was killed, and with one that is to be salvaged."""


@dataclass(frozen=True, slots=True, order=True)
class Call:
    """A system call of the load, by its number among those of its kind on its object."""

    kind: str
    object: str
    number: int


def faults_of(call: Call) -> tuple[str, ...]:
    """Return what may happen to a call: kill, torn, short or the name of an error."""
    match call.kind, call.object:
        case ("write" | "sendto", "unix"):
            return ("kill",)  # the loop wakes itself: the kernel never refuses that
        case ("sendto" | "sendmsg" | "sendmmsg", "udp"):
            return ("kill", "ENOBUFS", "ENETUNREACH")
        case ("sendto", "tcp"):
            return ("kill", "short", "ECONNRESET")
        case ("sendmsg" | "sendmmsg" | "writev", _):
            return ("kill", "ECONNRESET")
        case ("write" | "pwrite", _):
            return ("kill", "torn", "short", "EIO", "ENOSPC")
        case ("unlink", _):
            return ("kill", "EIO")
        case _:
            return ("kill", "EIO", "ENOSPC")


class Runner:
    """Runs the load once for each crash of a scenario."""

    def __init__(self, folder: Path, scenario: str, mutant: str = "") -> None:
        self._mutant: Hook = getattr(mutants, mutant) if mutant else nothing
        self._gateway = CrashingGateway(folder)
        self._scenario = scenario
        self._calls = folder / "calls.log"
        self._arm = ctypes.CDLL(os.environ["LD_PRELOAD"]).arm
        self._base: Path | None = None
        self._earlier = Sensor(self._gateway.ports, FIRST_ID_BEFORE)
        self._contents = Contents((), ())
        if scenario != "new":
            self._base = self._prepare(folder / "base")

    def count(self) -> list[Call]:
        """Run the load without a fault, and return its calls in order."""
        wrong = self._run(lambda: self._plan(Call("", "", 0), "kill"))
        if wrong:
            raise RuntimeError(f"the load fails without a fault: {wrong}\n{self._gateway.log()}")
        seen: Counter[tuple[str, str]] = Counter()
        calls = []
        for line in self._calls.read_text().splitlines():
            kind, _, name = line.partition(" ")
            seen[kind, name] += 1
            calls.append(Call(kind, name, seen[kind, name]))
        return calls

    def crash(self, call: Call, fault: str) -> str:
        """Run the load with one fault; return the outcome, and print what is not as without one."""
        wrong, said = self._run(lambda: self._plan(call, fault)), ""
        if wrong:
            outcome, said = "wrong", f" {wrong}\n{self._gateway.log()[-6_000:]}"
        elif "!" not in self._calls.read_text().splitlines():
            outcome = "not reached"
        else:
            outcome = "alarm" if self._gateway.alarms() else "whole"
        if outcome != "whole":
            print(f"{self._scenario} {call} {fault}: {outcome}{said}", file=sys.stderr)
        return outcome

    def _run(self, before: Hook) -> list[str]:
        self._calls.unlink(missing_ok=True)
        self._gateway.replace(self._base)
        sensor = Sensor(self._gateway.ports, FIRST_ID)
        hangs = self._gateway.live(sensor, before)
        acked = sensor.acked | self._earlier.acked
        wrong = ([hangs] if hangs else []) + self._gateway.recover(sensor)
        acked |= sensor.acked
        texts = sensor.texts | self._earlier.texts
        return wrong + faults(self._gateway.store, self._contents, texts, acked)

    def _prepare(self, base: Path) -> Path:
        """Make the store of an agent that was killed; with the scenario `salvage`, one that is to be salvaged."""
        self._gateway.replace(None)
        self._gateway.kill(self._earlier)
        shutil.copytree(self._gateway.state, base)
        self._contents = read(self._gateway.store)
        if self._scenario == "salvage":
            swap.suspect(base / self._gateway.store.name, SUSPICION)
        return base

    def _plan(self, call: Call, fault: str) -> None:
        self._mutant()
        what = {"kill": _KILL, "torn": _TORN, "short": _SHORT}.get(fault, _FAIL)
        error = getattr(errno, fault) if what == _FAIL else 0
        self._arm(call.kind.encode(), call.object.encode(), call.number, what, error, str(self._calls).encode())


def crashes(calls: Sequence[Call]) -> Iterator[tuple[Call, str]]:
    for call in calls:
        for fault in faults_of(call):
            yield call, fault


def main() -> None:
    """Run this module in a process that has loaded the library."""
    arguments = _arguments()
    if "LD_PRELOAD" in os.environ:
        _run(arguments)
    with work_folder() as folder:
        library = folder / "system_calls.so"
        subprocess.run([programs.require("cc"), "-O2", "-shared", "-fPIC", "-o", library, SOURCE], check=True)
        command = [sys.executable, "-m", "tests.crashes.system_calls", *sys.argv[1:]]
        sys.exit(subprocess.run(command, env={**os.environ, "LD_PRELOAD": str(library)}, check=False).returncode)


def _run(arguments: argparse.Namespace) -> None:
    """Run the chosen part, print the counts, and exit with 1 where anything is wrong."""
    report: dict[str, object] = {}
    is_wrong = False
    with work_folder() as folder:
        for scenario in arguments.scenario:
            (folder / scenario).mkdir()
            runner = Runner(folder / scenario, scenario, arguments.mutant)
            calls = runner.count()
            kinds = Counter(f"{call.kind} {call.object}" for call in calls)
            outcomes = _crash(runner, arguments, calls)
            is_wrong = is_wrong or "wrong" in outcomes
            count = len(list(crashes(calls)))
            report[scenario] = {"calls": dict(sorted(kinds.items())), "crashes": count, "outcomes": outcomes}
        print(json.dumps(report, indent=1))
    sys.exit(is_wrong)


def _crash(runner: Runner, arguments: argparse.Namespace, calls: Sequence[Call]) -> dict[str, dict[str, int]]:
    """Run the chosen crashes; return how many of each fault had each outcome."""
    chosen = [
        (call, fault)
        for call, fault in crashes(calls)
        if arguments.call in ("", call.kind)
        and arguments.object in ("", call.object)
        and arguments.fault in ("", fault)
    ]
    part, parts = (int(number) for number in arguments.part.split("/"))
    outcomes: dict[str, Counter[str]] = defaultdict(Counter)
    for call, fault in chosen[part - 1 :: parts]:
        outcomes[runner.crash(call, fault)][fault] += 1
    return {outcome: dict(counts) for outcome, counts in outcomes.items()}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.crashes.system_calls", description=__doc__)
    parser.add_argument("--scenario", nargs="*", default=SCENARIOS, choices=SCENARIOS)
    parser.add_argument("--part", default="1/1", help="every 48th crash from the first on: 1/48")
    parser.add_argument("--call", default="")
    parser.add_argument("--object", default="")
    parser.add_argument("--fault", default="")
    parser.add_argument("--mutant", default="", help="a function of tests/crashes/mutants.py")
    return parser.parse_args()


@dataclass(frozen=True, slots=True)
class Contents:
    """The stored events of a sensor in order of their labels, and all labels."""

    events: tuple[tuple[int, str, Label], ...]
    """Id, text and label."""
    labels: tuple[Label, ...]
    """Of all events, the gateway's own included."""


def read(store: Path) -> Contents:
    events, labels = [], []
    with closing(database.open_for_reading(store)) as connection:
        epochs = Epochs.load(connection)
        for event in read_packed(connection, 1, 1 << 40):
            document = json.loads(b"{" + event.tail + b"}")
            labels.append(epochs.label(event.position))
            if document["device"] == DEVICE:
                events.append((document["id"], document["data"]["text"], labels[-1]))
    return Contents(tuple(events), tuple(labels))


def faults(store: Path, before: Contents, texts: Mapping[int, str], acked: Collection[int]) -> list[str]:
    """Return what is wrong with a store of which these events were acked, and which had these contents before."""
    after = read(store)
    copies = Counter(number for number, _, _ in after.events)
    found = [f"event {number} is acked and not there" for number in sorted(set(acked) - copies.keys())]
    found += [f"event {number} is there {count} times" for number, count in sorted(copies.items()) if count > 1]
    found += [f"event {number} has another text" for number, text, _ in after.events if texts[number] != text]
    found += [f"label {label} is there twice" for label, count in Counter(after.labels).items() if count > 1]
    labels = {number: label for number, _, label in after.events}
    found += [f"event {number} has another label" for number, _, label in before.events if labels.get(number) != label]
    found += [f"verify: {defect.check}: {defect.text}" for defect in verify(store).findings]
    return found


if __name__ == "__main__":
    main()
