"""What the oracle found: counts, what is declared, and examples with their whole history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

BROKEN = ("lost", "doubled", "invented", "changed", "disordered", "mislabelled", "premature", "unreceipted")
"""What must be nought where the promise is kept."""
DECLARED = {
    "equal-events": "a sensor said the same twice and meant two events (guarantees, 2)",
    "restamped-resends": "a resend was stamped with another time, and so is another event (guarantees, 2)",
    "resent-without-proof": "an event with neither id nor time was sent again in a new request (guarantees, 2)",
    "heard-twice-without-id": "an event with neither id nor time was heard by two gateways (guarantees, 2)",
    "across-a-restored-card": "an event with neither id nor time was retransmitted to an older copy of the store "
    "(guarantees, 2)",
}
"""The limits that docs/guarantees.md states, by the names under which they are counted."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One way in which truth and table disagree, and everything that is known of it."""

    what: str
    """One of BROKEN."""
    said: str
    sent: int
    acked: int
    rows: int
    marks: tuple[int, ...] = ()
    history: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Write it for people, with its history."""
        head = f"{self.what}: {self.said} (events sent {self.sent}, acked {self.acked}, rows {self.rows})"
        return "\n    ".join((head, *self.history))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the audit found; the promise is kept where `kept`."""

    events: int
    acked: int
    refused: int
    given_up: int
    transmissions: int
    """Events in all transmissions: an event that was sent three times counts three."""
    rows: int | None
    """None where there was no table to look at: then only the sensors' side is known."""
    records: int | None = None
    repeats: int = 0
    lost: int = 0
    doubled: int = 0
    invented: int = 0
    changed: int = 0
    disordered: int = 0
    mislabelled: int = 0
    """Labels that two events have, and events that have two labels though one gateway heard them."""
    premature: int = 0
    """Records that had a receipt before the table had them."""
    unreceipted: int = 0
    """Events of the gateways' stores whose receipt has not come."""
    declared: Mapping[str, int] = field(default_factory=dict)
    """Limits that guarantees.md states, by name, and how often they showed."""
    violations: tuple[Violation, ...] = ()
    """The first of each sort."""
    complete: bool = True
    """False where the run was interrupted: what is missing may still have been on its way."""

    @property
    def kept(self) -> bool:
        """Whether table and truth agree."""
        return not self.faults

    @property
    def faults(self) -> dict[str, int]:
        """Give what must not be, by name."""
        return {name: count for name in BROKEN if (count := getattr(self, name))}

    @property
    def unacked(self) -> int:
        """Events that no sensor knows to be safe."""
        return self.events - self.acked

    def document(self) -> dict[str, Any]:
        """Give the verdict as JSON's types."""
        return {**asdict(self), "kept": self.kept}


def from_document(document: Mapping[str, Any]) -> Verdict:
    """Read a verdict that `document` wrote."""
    fields = {name: value for name, value in document.items() if name != "kept"}
    violations = tuple(
        Violation(**{**one, "marks": tuple(one["marks"]), "history": tuple(one["history"])})
        for one in fields.pop("violations")
    )
    return Verdict(**fields, violations=violations)


def sentence(verdict: Verdict) -> str:
    """Say the verdict in one sentence."""
    if not verdict.kept:
        return f"The promise was broken: {', '.join(f'{count:,} {name}' for name, count in verdict.faults.items())}."
    if verdict.rows is None:
        return (
            f"{verdict.acked:,} of {verdict.events:,} events were acked. No table was looked at, so nothing is known "
            "of what became of them: name one with --table or --kafka."
        )
    known = ", ".join(f"{count:,} {name}" for name, count in verdict.declared.items() if count)
    limits = f" Declared limits showed: {known}." if known else ""
    if not verdict.complete:
        return f"So far nothing is doubled or invented; the run was interrupted, and the rest is not judged.{limits}"
    return f"Nothing was lost, nothing was doubled.{limits}"
