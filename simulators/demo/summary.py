"""The figures of a run: as JSON, as a table for people, and whether they keep the promise."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table


@dataclass(frozen=True, slots=True)
class Kill:
    """A process that was killed (SIGKILL), and the work that it was in."""

    process: str
    time: str
    """RFC 3339."""
    unacked: int
    """Events sent whose ACK the sensors had not heard."""
    outbox_rows: int
    """Events in the gateway's store whose receipt had not come."""
    batch_stage: str
    """Where the job was in its batch."""


@dataclass(frozen=True, slots=True)
class Outage:
    """The broker was stopped (SIGTERM) and away for a while; both moments RFC 3339."""

    begin: str
    end: str


@dataclass(frozen=True, slots=True)
class Summary:
    """What went in, what came out, and what is missing between them."""

    events: int
    transmissions: int
    acked: int
    accepted: int
    duplicates: int
    kafka_records: int
    rows: int
    lost: int
    doubled: int
    invented: int
    changed: int
    unreceipted: int
    equal_readings: int
    seconds: float
    seed: int
    kills: tuple[Kill, ...]
    outages: tuple[Outage, ...]

    @property
    def faults(self) -> dict[str, int]:
        """What must not be, by name: counts that are zero where the promise is kept."""
        return {
            "lost": self.lost,
            "doubled": self.doubled,
            "invented": self.invented,
            "changed": self.changed,
            "unreceipted": self.unreceipted,
            "unacked": self.events - self.acked,
        }

    @property
    def kept(self) -> bool:
        """Whether every event came through once, and everybody who should knows it."""
        return not any(self.faults.values())

    def write(self, path: Path) -> None:
        """Write the figures as one JSON object."""
        path.write_text(json.dumps(asdict(self), indent=2) + "\n")


LABELS = {
    "events": "events that the sensors had to report",
    "transmissions": "transmissions, resends included",
    "acked": "acked: the sensor knows that its event is safe",
    "accepted": "accepted by the agent as new",
    "duplicates": "copies that the agent recognised",
    "kafka_records": "records in Kafka",
    "rows": "rows in the table",
    "lost": "lost: acked, and not in the table",
    "doubled": "doubled: more rows than events",
    "unreceipted": "still without a receipt",
}
_MUST_BE_ZERO = ("lost", "doubled", "unreceipted")


def broken(summary: Summary) -> str:
    """Say for people what must not be."""
    return ", ".join(f"{count:,} {name}" for name, count in summary.faults.items() if count)


def table(summary: Summary) -> Table:
    """Lay the figures out for a terminal."""
    laid_out = Table(title=f"Demo, seed {summary.seed}, {summary.seconds:.0f} s", title_justify="left")
    laid_out.add_column("")
    laid_out.add_column("count", justify="right")
    for name, label in LABELS.items():
        count = getattr(summary, name)
        bad = name in _MUST_BE_ZERO and count
        laid_out.add_row(label, f"{count:,}", style="bold red" if bad else None, end_section=name == "rows")
    return laid_out


def kill_table(summary: Summary) -> Table:
    """Lay out what the kills hit."""
    laid_out = Table(title="Killed (SIGKILL) in the middle of work", title_justify="left")
    for column in ("process", "time", "requests unacked", "outbox rows", "batch stage"):
        laid_out.add_column(column, justify="right" if column in ("requests unacked", "outbox rows") else "left")
    for kill in summary.kills:
        laid_out.add_row(kill.process, kill.time[11:23], str(kill.unacked), str(kill.outbox_rows), kill.batch_stage)
    return laid_out
