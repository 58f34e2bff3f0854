"""The variants that are compared: the delivery modes, and the product without one dedup or both."""

from __future__ import annotations

from dataclasses import dataclass

from simulators.oracle.verdict import Verdict
from simulators.run.services import Overrides

_AGENT = ("simulators.compare.patches:agent_without_dedup",)
_JOB = ("simulators.compare.patches:job_without_dedup",)


@dataclass(frozen=True, slots=True)
class Variant:
    """A variant of the same field test."""

    name: str
    description: str
    overrides: Overrides


VARIANTS = (
    Variant("at-least-once", "the default mode", Overrides()),
    Variant("exactly-once", "Kafka transactions, for readers of the topic", Overrides(delivery="exactly-once")),
    Variant("at-most-once", "sent once, without retries", Overrides(delivery="at-most-once")),
    Variant("no-agent-dedup", "the gateway recognises no resend", Overrides(agent_patches=_AGENT)),
    Variant("no-cloud-dedup", "the job writes every record", Overrides(job_patches=_JOB)),
    Variant("no-dedup", "neither recognises a duplicate", Overrides(agent_patches=_AGENT, job_patches=_JOB)),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a variant."""

    variant: str
    description: str
    events: int
    transmissions: int
    acked: int
    records: int
    repeats: int
    """Records in Kafka that repeat an earlier label."""
    rows: int
    lost: int
    doubled: int


def outcome(variant: Variant, verdict: Verdict) -> Outcome:
    """Return the compared figures of a verdict."""
    return Outcome(
        variant=variant.name,
        description=variant.description,
        events=verdict.events,
        transmissions=verdict.transmissions,
        acked=verdict.acked,
        records=verdict.records or 0,
        repeats=verdict.repeats,
        rows=verdict.rows or 0,
        lost=verdict.lost,
        doubled=verdict.doubled,
    )
