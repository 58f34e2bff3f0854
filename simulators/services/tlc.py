"""Runs TLC, the model checker of TLA+, on one configuration of a specification."""

import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from simulators.services.install import jars, java

HEAP_MEGABYTES_MAX = 1_500
_VIOLATED = re.compile(r"^Error: (?:Invariant|Action property) (\w+) is violated", re.MULTILINE)
_STATES = re.compile(r"^(\d+) states generated, (\d+) distinct states found, 0 states left on queue", re.MULTILINE)
_DONE = "Model checking completed. No error has been found."
_LIVENESS = "Error: Temporal properties were violated."


class CheckOutcome(Enum):
    """The result of a run."""

    HOLDS = "holds"
    VIOLATED = "violated"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Run:
    """What TLC has found, and its whole output with the counterexample."""

    outcome: CheckOutcome
    output: str
    violated: str = ""
    """The name of the violated invariant, or of the property where TLC does not name it."""
    states: int = 0
    """How many distinct states there are; 0 where TLC has not seen all of them."""


def run(specification: Path, configuration: Path, properties: tuple[str, ...], seconds_max: float) -> Run:
    """Check a specification breadth first by one worker, so that the shortest counterexample is found (decision 69)."""
    with tempfile.TemporaryDirectory(prefix="oncegate-tlc-") as folder:
        command = [
            *(str(java.require()), "-XX:+UseParallelGC", "-XX:ParallelGCThreads=1", f"-Xmx{HEAP_MEGABYTES_MAX}m"),
            *(f"-Djava.io.tmpdir={folder}", "-cp", str(jars.paths(jars.TLC)[0]), "tlc2.TLC", "-workers", "1"),
            *("-deadlock", "-fp", "0", "-metadir", folder, "-config", str(configuration), specification.name),
        ]
        try:
            done = subprocess.run(
                command,
                cwd=specification.parent,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=seconds_max,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Run(CheckOutcome.FAILED, f"{configuration}: TLC has not ended within {seconds_max:.0f} s\n")
    return read(done.stdout, properties)


def run_traced(specifications: Sequence[Path], lines: str, configuration: str, seconds_max: float) -> Run:
    """Check traces, which are the module `lines`, by the last of the specifications; it extends the others."""
    with tempfile.TemporaryDirectory(prefix="oncegate-trace-") as name:
        folder = Path(name)
        for source in specifications:
            (folder / source.name).write_text(source.read_text())
        (folder / "lines.tla").write_text(lines)
        file = folder / "trace.cfg"
        file.write_text(configuration)
        return run(folder / specifications[-1].name, file, (), seconds_max)


def read(output: str, properties: tuple[str, ...]) -> Run:
    """Return the result in an output of TLC; `properties` are the temporal properties, of which it names none."""
    if violated := _VIOLATED.search(output):
        return Run(CheckOutcome.VIOLATED, output, violated[1])
    if _LIVENESS in output and len(properties) == 1:
        return Run(CheckOutcome.VIOLATED, output, properties[0])
    states = _STATES.search(output)
    if _DONE in output and states:
        return Run(CheckOutcome.HOLDS, output, states=int(states[2]))
    return Run(CheckOutcome.FAILED, output)
