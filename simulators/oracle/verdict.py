"""The verdict: counts, declared limits, and examples with their histories."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

BROKEN = {
    "lost": "lost: acked, and not in the table",
    "doubled": "doubled: more rows than events",
    "invented": "invented: rows that no sensor has sent",
    "changed": "changed: rows whose data differs from what the sensor sent",
    "disordered": "disordered: a device's events in another order than it reported them",
    "mislabelled": "mislabelled: labels, offsets or fingerprints that contradict one another",
    "misdeclared": "misdeclared: declared as given up, and in the topic",
    "premature": "premature: a receipt for a record that was not in the table",
    "unreceipted": "unreceipted: still without a receipt",
    "unacked": "unacked: the sensor has no ACK for its event",
}
"""The counts that must be zero where the guarantees hold, with their descriptions."""
DECLARED = {
    "equal-events": "a sensor sent equal contents for two events (guarantees, 2)",
    "restamped-resends": "a resend was stamped with another time, and so is another event (guarantees, 2)",
    "resent-without-proof": "an event with neither id nor time was sent again in a new request (guarantees, 2)",
    "received-twice-without-id": "an event with neither id nor time was received by two gateways (guarantees, 2)",
    "across-a-restored-card": "an event with neither id nor time was retransmitted to an older copy of the store "
    "(guarantees, 2)",
}
"""The limits that docs/guarantees.md states, by the names of their counts."""
EXAMPLES_MAX = 20
"""Largest number of examples of each violation."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A disagreement between ledger and evidence, with its history."""

    what: str
    """One of BROKEN."""
    subject: str
    sent: int
    acked: int
    rows: int
    marks: tuple[int, ...] = ()
    history: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the violation and its history as readable text."""
        head = f"{self.what}: {self.subject} (events sent {self.sent}, acked {self.acked}, rows {self.rows})"
        return "\n    ".join((head, *self.history))


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a run; the guarantees held where `kept`."""

    events: int
    acked: int
    refused: int
    given_up: int
    transmissions: int
    """Transmissions of all events: an event that was sent three times counts three."""
    rows: int | None
    """None where no table was read: then only the sensors' side is known."""
    records: int | None = None
    repeats: int = 0
    malformed: int = 0
    """Records of the topic that are no events, which were skipped."""
    lost: int = 0
    doubled: int = 0
    invented: int = 0
    changed: int = 0
    disordered: int = 0
    mislabelled: int = 0
    """Contradictory labels, offsets and fingerprints."""
    misdeclared: int = 0
    """Labels that a gateway declared as given up and that are in the topic."""
    premature: int = 0
    """Records that had a receipt before the table had them."""
    unreceipted: int = 0
    """Events in the gateways' stores without a receipt."""
    unacked: int = 0
    """Events still waiting for an ACK at the end of the settling time."""
    declared: Mapping[str, int] = field(default_factory=dict)
    """How often each declared limit occurred, by name."""
    violations: tuple[Violation, ...] = ()
    """The first violations of each kind."""
    complete: bool = True
    """Whether the run finished; where it was interrupted, missing events may still be in transit."""
    arriving: bool = False
    """Whether rows were still arriving when the table was read."""
    cut: tuple[int, ...] = ()
    """The partitions of the topic whose first records were deleted by retention."""
    unknown: int = 0
    """Acked events without a row that may still arrive or may have been deleted."""
    of_topic: bool = False
    """Whether the rows are the events of the topic, because no table was read."""

    @property
    def vacuous(self) -> bool:
        """Whether there is nothing to judge: no event was acked, and the table is empty."""
        return self.acked == 0 and not self.rows

    @property
    def judged(self) -> bool:
        """Whether the evidence suffices for a verdict; for an interrupted run, for a preliminary one."""
        open_ = self.complete and (self.arriving or self.unknown > 0)
        return self.rows is not None and not self.cut and not open_ and not self.vacuous

    @property
    def kept(self) -> bool:
        """Whether ledger and evidence agree, as far as the run went."""
        return self.judged and not self.faults

    @property
    def faults(self) -> dict[str, int]:
        """Return the counts that must be zero and are not, by name."""
        return {name: count for name in BROKEN if (count := getattr(self, name))}

    def document(self) -> dict[str, Any]:
        """Return the verdict as JSON types."""
        return {**asdict(self), "kept": self.kept}


def from_document(document: Mapping[str, Any]) -> Verdict:
    """Return the verdict from the output of `document`."""
    fields = {name: value for name, value in document.items() if name != "kept"}
    violations = tuple(
        Violation(**{**one, "marks": tuple(one["marks"]), "history": tuple(one["history"])})
        for one in fields.pop("violations")
    )
    return Verdict(**{**fields, "cut": tuple(fields["cut"])}, violations=violations)


def sentence(verdict: Verdict) -> str:
    """Return the verdict in one or a few sentences."""
    if verdict.vacuous:
        return (
            f"No verdict: of {verdict.events:,} events none was acked and none is in the table. Does the gateway run, "
            "and does it accept events of these sensors?"
        )
    if verdict.faults:
        counts = ", ".join(f"{count:,} {name}" for name, count in verdict.faults.items())
        return " ".join((f"The guarantees were violated: {counts}.", *_missing_evidence(verdict)))
    if verdict.rows is None:
        return (
            f"{verdict.acked:,} of {verdict.events:,} events were acked. No table was read, so whether they arrived is "
            "unknown: name one with --table, --postgres or --kafka."
        )
    known = ", ".join(f"{count:,} {name}" for name, count in verdict.declared.items() if count)
    limits = (f"Declared limits showed: {known}.",) if known else ()
    if verdict.of_topic:
        limits = ("The topic was judged: no table was read.", *limits)
    if missing := tuple(_missing_evidence(verdict)):
        return " ".join(("No verdict.", *missing, "No fault was found in the available evidence.", *limits))
    if not verdict.complete:
        so_far = (
            "So far the guarantees held. The run was interrupted: events that may still have been in transit, missing "
            "ACKs and missing receipts are not judged."
        )
        return " ".join((so_far, *limits))
    return " ".join(("Nothing was lost, nothing was doubled, and no other fault was found.", *limits))


def _missing_evidence(verdict: Verdict) -> Iterator[str]:
    """Yield sentences about missing evidence and its consequences; nothing where the evidence is complete."""
    if verdict.cut:
        partitions = ", ".join(map(str, verdict.cut))
        yield f"The evidence is incomplete: retention has deleted the beginning of the topic (partition {partitions})."
    if verdict.complete and verdict.arriving:
        yield "Rows were still arriving when they were read: judge again later, with oncegate-sim judge."
    if verdict.unknown and (verdict.cut or verdict.complete):
        yield f"{verdict.unknown:,} acked events are not there; it is unknown whether they were lost."
    if verdict.unknown and verdict.complete and not verdict.cut and not verdict.unreceipted:
        yield (
            "They may still be in transit: wait until the gateway's status shows 0 new events and the job has written "
            "all records, then run oncegate-sim judge with --final, which counts each missing event as lost."
        )
    if verdict.cut:
        yield "Duplicates and order in these partitions are judged by the remaining records only."


@dataclass(frozen=True, slots=True)
class Scope:
    """The properties of a run that decide what can be judged."""

    has_table: bool = True
    of_topic: bool = False
    """Whether the events of the topic are judged in place of a table's rows."""
    gateways: int = 1
    complete: bool = True
    """Whether the run finished; False where it was interrupted."""
    settled: bool = True
    """Whether all accepted events must be in the table by now; otherwise a missing one may still be in transit."""
    arriving: bool = False
    """Whether rows were still arriving when the table was read."""
    one_clock: bool = False
    """Whether sensors, Kafka and job shared one clock, so that their timestamps can be compared."""


@dataclass(slots=True)
class Findings:
    """The counts and examples that the checks collect."""

    counts: Counter[str] = field(default_factory=Counter)
    declared: Counter[str] = field(default_factory=Counter)
    examples: list[Violation] = field(default_factory=list)
    _kept: Counter[str] = field(default_factory=Counter)

    def add(self, violation: Violation, count: int = 1) -> None:
        """Count a violation, and keep it as an example where it is among the first of its kind."""
        self.counts[violation.what] += count
        if self._kept[violation.what] < EXAMPLES_MAX:
            self._kept[violation.what] += 1
            self.examples.append(violation)

    def take_back(self, violation: Violation) -> None:
        """Undo one `add`."""
        self.counts[violation.what] -= 1
        if violation in self.examples:
            self._kept[violation.what] -= 1
            self.examples.remove(violation)
