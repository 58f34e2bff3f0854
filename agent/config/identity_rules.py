"""The operator's rules for the identity of some devices' events: [[identity.rules]]."""

from dataclasses import dataclass

from agent.config import readers
from agent.config.mistakes import read_entries
from contract.fingerprint import IDENTITY_FIELDS

KEEP, DROP = "keep", "drop"
_KEYS = frozenset({"device", "fields", "ambiguous", "window"})
_EXPECTED = 'expected tables with device (a pattern), and fields (of an event), or ambiguous = "drop" with window'


@dataclass(frozen=True, slots=True)
class IdentityRule:
    """One entry of [[identity.rules]]."""

    device: str
    """A glob pattern on the device."""
    fields: tuple[str, ...] = IDENTITY_FIELDS
    """The fields of the identity; without `time` for a sensor that sets a new time in each resend."""
    window_seconds: float | None = None
    """Within which an equal event is a duplicate, although its identity would need its label; from the first one on.
    None: such events are all kept."""


def read_rules(value: object) -> tuple[IdentityRule, ...]:
    """Read the tables of [[identity.rules]]; raise ValueError."""
    return read_entries(value, _read, _EXPECTED)


def _read(table: object) -> IdentityRule:
    if not isinstance(table, dict) or "device" not in table or len(table) < 2:
        raise ValueError(_EXPECTED)
    if unknown := set(table) - _KEYS:
        raise ValueError(f"{_EXPECTED}; not {min(unknown)!r}")
    fields = table.get("fields", list(IDENTITY_FIELDS))
    if not isinstance(fields, list) or not set(fields) <= set(IDENTITY_FIELDS) or len(set(fields)) != len(fields):
        raise ValueError(f"expected as fields some of {', '.join(IDENTITY_FIELDS)}, each once")
    if "device" not in fields:
        raise ValueError("expected device among the fields: else events of two devices would be one")
    ambiguous = table.get("ambiguous", KEEP)
    if ambiguous not in (KEEP, DROP):
        raise ValueError(f"expected as ambiguous one of {KEEP}, {DROP}")
    if (ambiguous == DROP) != ("window" in table):
        raise ValueError('expected window together with ambiguous = "drop", and only then')
    window = readers.entry(table, "window", readers.positive_duration) if ambiguous == DROP else None
    ordered = tuple(name for name in IDENTITY_FIELDS if name in fields)
    return IdentityRule(readers.pattern(table["device"]), ordered, window)
