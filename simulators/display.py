"""Progress display of a run: a progress bar on a terminal, plain lines elsewhere."""

import time
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from simulators.ledger import Counts

LINE_SECONDS = 5.0
_INDENT = "  "


class Display:
    """Shows phases, facts and progress; phases and facts are permanent lines."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._start = time.monotonic()
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._last_line = 0.0
        self._last_rates = (0.0, 0, 0)

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            columns = (
                *(SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn()),
                *(TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()),
            )
            self._progress = Progress(*columns, console=self.console, transient=True)
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def phase(self, what: str) -> None:
        """Begin a phase of the run."""
        self._line(what, style="bold")
        if self._progress is not None:
            if self._task is not None:
                self._progress.remove_task(self._task)
            self._task = self._progress.add_task(what, total=None)

    def fact(self, what: str) -> None:
        """Print a fact."""
        self._line(_INDENT + what)

    def count(self, done: int, total: int, what: str) -> None:
        """Show the progress of the phase."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=min(done, total), total=total, description=what)
        elif time.monotonic() - self._last_line > LINE_SECONDS:
            self._line(_INDENT + what)

    def progress(self, counts: Counts, seconds: float, seconds_total: float) -> None:
        """Show the elapsed time, the counts, and the rates since the last call."""
        left = max(0.0, seconds_total - seconds)
        when = f"{left:.0f} s left" if left else f"{counts.open:,} events outstanding"
        self.count(round(seconds), round(seconds_total), f"{self._rates(counts)}; {when}")

    def _rates(self, counts: Counts) -> str:
        before, transmissions, acked = self._last_rates
        now = time.monotonic()
        self._last_rates = (now, counts.transmissions, counts.acked)
        seconds = now - before if before else 0.0
        sent_rate = (counts.transmissions - transmissions) / seconds if seconds else 0.0
        acked_rate = (counts.acked - acked) / seconds if seconds else 0.0
        return (
            f"{counts.acked:,} of {counts.events:,} events acked ({acked_rate:.0f}/s), "
            f"{counts.transmissions:,} requests ({sent_rate:.0f}/s), {counts.in_flight:,} in flight"
        )

    def _line(self, text: str, style: str = "") -> None:
        self._last_line = time.monotonic()
        # Text instead of str, whose brackets, such as those of an address, would be markup.
        line = Text.assemble(f"{time.monotonic() - self._start:6.1f} s  ", (text, style))
        self.console.print(line, highlight=False, soft_wrap=True)
