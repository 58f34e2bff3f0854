"""Checks all configurations and all mutants, two at a time, and prints a table of the results."""

import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from models.suite import Configuration, Mutant
from simulators.services import tlc
from simulators.services.tlc import CheckOutcome, Run

AT_ONCE = 2
"""How many checkers run at once, each in one thread."""
SECONDS_MAX = 1_200.0
"""How long one of them may take: four times as long as the longest on two idle cores."""
OUTPUT_FOLDER = Path("build") / "models"
"""Where the outputs of failed checks are, with their counterexamples."""

Check = Configuration | Mutant


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one check."""

    check: Check
    run: Run
    seconds: float

    @property
    def failure(self) -> str:
        """Why it fails; empty where it is as expected."""
        if self.run.outcome is CheckOutcome.FAILED:
            return "TLC failed"
        if isinstance(self.check, Configuration):
            return f"violates {self.run.violated}" if self.run.outcome is CheckOutcome.VIOLATED else ""
        if self.run.outcome is CheckOutcome.HOLDS:
            return "survives"
        return "" if self.run.violated == self.check.breaks else f"breaks {self.run.violated} instead"


def check_configuration(configuration: Configuration, seconds_max: float = SECONDS_MAX) -> Result:
    """Check a configuration of the specification as it is."""
    start = time.monotonic()
    run = tlc.run(configuration.specification, configuration.path, configuration.properties, seconds_max)
    return Result(configuration, run, time.monotonic() - start)


def check_mutant(mutant: Mutant, seconds_max: float = SECONDS_MAX) -> Result:
    """Check a mutant of a specification."""
    configuration = mutant.configuration
    with tempfile.TemporaryDirectory(prefix="oncegate-mutant-") as folder:
        changed = Path(folder) / configuration.specification.name
        changed.write_text(mutant.apply(configuration.specification.read_text()))
        start = time.monotonic()
        run = tlc.run(changed, configuration.path, configuration.properties, seconds_max)
        return Result(mutant, run, time.monotonic() - start)


def check_all(
    configurations: Sequence[Configuration], mutants: Sequence[Mutant], done: Callable[[Result], None]
) -> list[Result]:
    """Check all, and call `done` with each result as it arrives; return the results in the order of the arguments."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        futures: list[Future[Result]] = [
            *(pool.submit(check_configuration, one) for one in configurations),
            *(pool.submit(check_mutant, one) for one in mutants),
        ]
        for future in as_completed(futures):
            done(future.result())
        return [future.result() for future in futures]


def keep_output(result: Result, folder: Path = OUTPUT_FOLDER) -> Path:
    """Write what TLC has printed, and return the file."""
    name = result.check.name if isinstance(result.check, Mutant) else str(result.check).replace("/", "-")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.txt"
    file.write_text(result.run.output)
    return file
