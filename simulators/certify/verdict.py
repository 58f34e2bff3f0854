"""What the facts of a run say of a consumer: pure, no I/O."""

from dataclasses import dataclass, field

from simulators.certify.result import Found

FAULTS = {
    "premature": "a gateway has deleted them, by a receipt, while the result did not have them",
    "lost": "a gateway has deleted them, and the result does not have them at the end",
    "doubled": "the result has them more than once",
    "invented": "only an aborted transaction had them, and the result has them",
    "missing": "no receipt has come for them, though the consumer could have given it",
    "refused": "they are whole, perhaps of a later release (R3), and the result has them among the refused ones alone",
    "unrecorded": "malformed records below a receipt that are neither in the result nor among the refused ones",
    "unjudged": "a receipt came while the result could not be read",
}
"""What each line of the verdict counts."""


@dataclass(slots=True)
class Facts:
    """What was seen in one part of a run; events are named by their fingerprints."""

    name: str
    places: dict[str, set[tuple[int, int]]] = field(default_factory=dict)
    """Of each event that Kafka has: the places by which the consumer may have refused it."""
    believed: set[str] = field(default_factory=set)
    """The events that a gateway has deleted."""
    premature: dict[str, str] = field(default_factory=dict)
    """Those that the result did not have then, and what the consumer was doing."""
    unjudged: dict[str, str] = field(default_factory=dict)
    """Those for which the result could not be read then, and why."""
    malformed: dict[tuple[int, int], str] = field(default_factory=dict)
    """The malformed records, each with its `ce_id`, if any."""
    aborted: set[str] = field(default_factory=set)
    due: frozenset[str] = frozenset()
    """The events for which the consumer could have given a receipt."""
    found: Found | None = None
    """The result at the end; None where it could not be read."""


def is_done(event: str, facts: Facts, found: Found) -> bool:
    """Whether the result has an event, or has refused one of its records."""
    return event in found.fingerprints or not found.refused.isdisjoint(facts.places.get(event, ()))


def faults(facts: Facts) -> dict[str, list[str]]:
    """Return the events, or places, of each fault that was found."""
    found = facts.found or Found()
    events: dict[str, list[str]] = {
        "premature": [f"{event}: {when}" for event, when in facts.premature.items()],
        "doubled": [event for event in facts.places if found.fingerprints[event] > 1],
        "invented": [event for event in facts.aborted if event in found.fingerprints],
        "unjudged": [f"{event}: {why}" for event, why in facts.unjudged.items()],
    }
    if facts.found is not None:
        events["lost"] = [event for event in facts.believed if not is_done(event, facts, found)]
    events["refused"] = [
        event for event in facts.places if event not in found.fingerprints and is_done(event, facts, found)
    ]
    events["missing"] = [event for event in facts.due if event not in facts.believed]
    if facts.due and found.names_refused and not events["missing"]:
        events["unrecorded"] = [
            f"partition {place[0]}, offset {place[1]}"
            for place, event in facts.malformed.items()
            if place not in found.refused and event not in found.fingerprints
        ]
    return {name: sorted(events[name]) for name in FAULTS if events.get(name)}
