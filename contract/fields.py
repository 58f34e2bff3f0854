"""The fields of an event: one line for each, from which records, tables and the audit are made.

The job reads a field that is added here, all sinks have a column for it, and it is part of the audit's leaf where a
record has it. `contract.event.Event` holds it, and `contract.record.encode_tail` writes it, in this order. Later
releases add to `ext` instead (docs/architecture.md).
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from contract.values import DEPTH_MAX

VERSION: Final = 2
"""The version of what a gateway sends, which `gateway.started` states; 2 has added `ext`."""


RETENTION_SECONDS: Final = 7 * 86_400
"""For how long an id is unique, and a fingerprint is remembered, unless the gateway states another time."""


class Kind(Enum):
    """What a field is in a record's value."""

    TEXT = auto()
    WORD = auto()
    """A text without anything that JSON escapes."""
    NAME = auto()
    """An integer or a text, which is a text in the table."""
    INTEGER = auto()
    TIME = auto()
    """Milliseconds since 1970 UTC, a timestamp in the table."""
    OBJECT = auto()
    """A JSON object, whose exact text the table has."""
    FINGERPRINT = auto()
    """32 hex digits, 16 bytes in the table."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an event."""

    name: str
    """The key in a record's value."""
    kind: Kind
    renamed: str = ""
    is_identity: bool = False
    """Whether the sensor said it, and it tells two events apart."""
    is_required: bool = False

    @property
    def column(self) -> str:
        return self.renamed or self.name


FIELDS: Final[tuple[Field, ...]] = (
    Field("device", Kind.TEXT, is_identity=True, is_required=True),
    Field("type", Kind.TEXT, is_identity=True, is_required=True),
    Field("id", Kind.NAME, is_identity=True),
    Field("boot", Kind.NAME, is_identity=True),
    Field("time", Kind.TIME, "event_time", is_identity=True),
    Field("offset_ms", Kind.INTEGER),
    Field("received", Kind.TIME, is_required=True),
    Field("via", Kind.WORD, is_required=True),
    Field("data", Kind.OBJECT, is_identity=True),
    Field("units", Kind.OBJECT),
    Field("ext", Kind.OBJECT),
    Field("possible_duplicate_of", Kind.FINGERPRINT),
)
"""In their order in a record's value, behind fingerprint, gateway, epoch and sequence."""
KEYS: Final = frozenset({"fingerprint", "gateway", "epoch", "sequence"} | {field.name for field in FIELDS})
"""All keys of a record's value."""
OBJECTS: Final = tuple(field.name for field in FIELDS if field.kind is Kind.OBJECT)

TEXT: Final = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
INTEGER: Final = r"-?(?:0|[1-9][0-9]*+)"
"""Regular expressions of JSON's forms, for Python and Java alike; possessive, so that Java's stack stays small."""


def _container() -> str:
    """Return an expression of a map or list of DEPTH_MAX levels in text that is known to be JSON."""
    inner = ""
    for _ in range(DEPTH_MAX + 1):  # bytes are one more map
        inner = rf'[{{\[](?:[^"{{}}\[\]]++|{TEXT}{inner and "|" + inner})*+[}}\]]'
    return inner


CONTAINER: Final = _container()
_ENTRIES: Final = rf"(?:,{{unlike}}{TEXT}:(?:{TEXT}|[^,\"{{{{}}}}\[\]]++|{{container}}))*+"


def exact_text(name: str) -> str:
    """Return an expression that finds the text of an OBJECT, as group 1, in what follows VIA_START in a value.

    Entries that are not known may be beside it. Tied to the start, so that a value made for it takes no quadratic time.
    """
    before, behind = (_ENTRIES.format(unlike=unlike, container=CONTAINER) for unlike in (f'(?!"{name}":)', ""))
    return rf'(?s)\A[^"\\]*+"{before},"{name}":({CONTAINER}){behind}\}}(?!.)'
