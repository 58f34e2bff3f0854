"""Check the models: `python -m models` checks all, with names only those configurations and mutants.

`python -m models large` checks the configurations of the long run. Exit status: 0 where each configuration holds and
each mutant breaks its invariant, else 1.
"""

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from models import suite
from models.check import Result, check_all, keep_output
from models.suite import LARGE, Configuration, Mutant, SuiteError
from simulators.services.error import ServiceError
from simulators.services.tlc import CheckOutcome


def main(names: Sequence[str]) -> int:
    """Check the named configurations and mutants, or all; print a table, and return the exit status."""
    console = Console()
    try:
        configurations, mutants = _select(names)
        missing = suite.objections(suite.configurations(), suite.mutants(), suite.GUARANTEES.read_text())
        results = _check_visibly(configurations, mutants, console)
    except (SuiteError, ServiceError) as error:
        print(f"models: {error}", file=sys.stderr)
        return 1
    console.print(table_of(results))
    for objection in missing:
        console.print(f"models: {objection}", style="red", highlight=False)
    for result in results:
        # A single check is run to read its counterexample.
        if result.failure or (names and len(results) == 1 and result.run.outcome is CheckOutcome.VIOLATED):
            what = result.failure or "broken as expected"
            console.print(f"models: {_name(result)}: {what}: {keep_output(result)}", highlight=False)
    failures = sum(bool(result.failure) for result in results) + len(missing)
    print(f"models: {len(configurations)} configurations, {len(mutants)} mutants, {failures} failures")
    return int(failures > 0)


def table_of(results: Sequence[Result]) -> Table:
    """Return the table of results."""
    table = Table(box=None, pad_edge=False)
    for column in ("checked", "expected", "found"):
        table.add_column(column)
    for column in ("states", "s"):
        table.add_column(column, justify="right")
    for result in results:
        expected = f"breaks {result.check.breaks}" if isinstance(result.check, Mutant) else "holds"
        states = f"{result.run.states:,}" if result.run.states else ""
        style = "red" if result.failure else None
        table.add_row(_name(result), expected, _found(result), states, f"{result.seconds:.1f}", style=style)
    return table


def _select(names: Sequence[str]) -> tuple[list[Configuration], list[Mutant]]:
    configurations, mutants = suite.configurations(), suite.mutants()
    if not names:
        return [one for one in configurations if not one.is_large], mutants
    chosen = [one for one in configurations if str(one) in names or (one.is_large and LARGE in names)]
    broken = [one for one in mutants if one.name in names]
    if unknown := {*names} - {LARGE, *map(str, chosen), *(one.name for one in broken)}:
        raise SuiteError(f"neither a configuration nor a mutant: {', '.join(sorted(unknown))}")
    return chosen, broken


def _check_visibly(
    configurations: Sequence[Configuration], mutants: Sequence[Mutant], console: Console
) -> list[Result]:
    columns = (TextColumn("models: {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("checking", total=len(configurations) + len(mutants))

        def done(result: Result) -> None:
            progress.update(task, advance=1, description=_name(result))
            if not console.is_terminal:  # where the bar is not shown
                print(f"models: {_name(result)}: {_found(result)}, {result.seconds:.1f} s", flush=True)

        return check_all(configurations, mutants, done)


def _found(result: Result) -> str:
    return result.failure or ("as expected" if isinstance(result.check, Mutant) else "holds")


def _name(result: Result) -> str:
    return result.check.name if isinstance(result.check, Mutant) else str(result.check)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
