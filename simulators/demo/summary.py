"""The figures of the demo, as JSON and as tables for a terminal."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table

from simulators.oracle.verdict import BROKEN, DECLARED, Verdict


@dataclass(frozen=True, slots=True)
class Kill:
    """A killed process (SIGKILL) and its work in progress."""

    process: str
    time: str
    """RFC 3339."""
    unacked: int
    """Events in transmission, without an ACK."""
    outbox_rows: int
    """Events in the gateway's store without a receipt."""
    batch_stage: str
    """The job's stage in its batch."""


@dataclass(frozen=True, slots=True)
class BrokerOutage:
    """A stop of the broker (SIGTERM); both times in RFC 3339."""

    begin: str
    end: str


@dataclass(frozen=True, slots=True)
class Summary:
    """The verdict and the figures of the demo."""

    verdict: Verdict
    requests: int
    """Transmissions of the sensors, including resends."""
    accepted: int
    duplicates: int
    equal_readings: int
    seconds: float
    sensors: int
    seed: int
    kills: tuple[Kill, ...]
    outages: tuple[BrokerOutage, ...]
    job_ends: int = 0
    """How often the job ended by itself, for example because Kafka did not answer, and was started again."""

    def figures(self) -> dict[str, int]:
        """Return the counts by name: the stations of the path, then everything that must be zero."""
        verdict = self.verdict
        return {
            "events": verdict.events,
            "transmissions": self.requests,
            "acked": verdict.acked,
            "accepted": self.accepted,
            "duplicates": self.duplicates,
            "kafka_records": verdict.records or 0,
            "rows": verdict.rows or 0,
            **{name: getattr(verdict, name) for name in BROKEN},
        }

    def write(self, path: Path) -> None:
        """Write the figures as one JSON object."""
        document = {
            **self.figures(),
            "kept": self.verdict.kept,
            "declared": dict(self.verdict.declared),
            "equal_readings": self.equal_readings,
            "seconds": self.seconds,
            "sensors": self.sensors,
            "seed": self.seed,
            "kills": [asdict(kill) for kill in self.kills],
            "outages": [asdict(outage) for outage in self.outages],
            "job_ends": self.job_ends,
        }
        path.write_text(json.dumps(document, indent=2) + "\n")


LABELS = {
    "events": "events that the sensors had to report",
    "transmissions": "transmissions, resends included",
    "acked": "acked: the sensor has received the ACK",
    "accepted": "accepted by the agent as new",
    "duplicates": "duplicates that the agent recognised",
    "kafka_records": "records in Kafka",
    "rows": "rows in the table",
    **BROKEN,
}


def table(summary: Summary) -> Table:
    """Return the figures as a table."""
    laid_out = Table(title=f"Demo, seed {summary.seed}, {summary.seconds:.0f} s", title_justify="left")
    laid_out.add_column("")
    laid_out.add_column("count", justify="right")
    for name, count in summary.figures().items():
        bad = name in BROKEN and count
        laid_out.add_row(LABELS[name], f"{count:,}", style="bold red" if bad else None, end_section=name == "rows")
    for limit, count in summary.verdict.declared.items():
        laid_out.add_row(f"declared, {limit}: {DECLARED[limit]}", f"{count:,}")
    return laid_out


def kill_table(summary: Summary) -> Table:
    """Return the kills and their work in progress as a table."""
    laid_out = Table(title="Killed (SIGKILL) in the middle of work", title_justify="left")
    for column in ("process", "time", "requests unacked", "outbox rows", "batch stage"):
        laid_out.add_column(column, justify="right" if column in ("requests unacked", "outbox rows") else "left")
    for kill in summary.kills:
        laid_out.add_row(kill.process, kill.time[11:23], str(kill.unacked), str(kill.outbox_rows), kill.batch_stage)
    return laid_out
