"""The metadata of a receipt: which table has read a partition without a gap, and from which offset on.

A receipt is the offset that the processing group has committed. Its metadata is
`oncegate:<table id>:<old table ids>:<first>:<topic id>`. The old ids, with commas between them, are empty unless the
job succeeds other tables. `first` has 20 digits. The topic id (Kafka's own, in base64url) comes last (decision 3) and
has 22 characters, so its end is known even if the client returns bytes beyond it. docs/receipts.md is the contract.

While the effects of later events fail, `:effects-failing-since=` and a time follow, which older gateways ignore.
"""

import re
from dataclasses import dataclass

GROUP_DEFAULT = "oncegate-cloud"
FIRST_DIGITS = 20
TOPIC_ID_CHARACTERS = 22
_PREFIX = "oncegate"
_TABLE = "[0-9A-Za-z-]+"
_FORM = re.compile(
    rf"{_PREFIX}:({_TABLE}):((?:{_TABLE}(?:,{_TABLE})*)?):"
    rf"([0-9]{{{FIRST_DIGITS}}}):([0-9A-Za-z_-]{{{TOPIC_ID_CHARACTERS}}})"
)
_FAILING = ":effects-failing-since="
"""Longer than what clients return beyond the end of shorter metadata (at most 31 bytes, with glibc)."""
_TIME = re.compile(rf"{_FAILING}([0-9]{{13}})")


@dataclass(frozen=True, slots=True)
class Receipt:
    """A partition's receipt: the table holds all records from `first` up to the committed offset."""

    table: str
    first: int
    topic_id: str
    """Id of the topic that the offsets belong to; a topic recreated under the same name has another id."""
    succeeds: str | None = None
    """Ids of the tables that this one replaces, with commas between them."""
    failing_since: int | None = None
    """Since when the effects of what follows have failed, in milliseconds since 1970 UTC (13 digits); None where they
    do not. A note alone, which changes nothing of the receipt."""

    def __post_init__(self) -> None:
        """Raise ValueError where an id would break the form of the metadata."""
        for table in (self.table, *self.succeeded):
            if not re.fullmatch(_TABLE, table):
                raise ValueError(f"table id {table!r}: expected letters of ASCII, digits and hyphens")

    @property
    def succeeded(self) -> list[str]:
        """Return the ids of the tables that this one replaces."""
        return self.succeeds.split(",") if self.succeeds else []

    def __str__(self) -> str:
        note = "" if self.failing_since is None else f"{_FAILING}{self.failing_since:013}"
        return f"{_PREFIX}:{self.table}:{self.succeeds or ''}:{self.first:0{FIRST_DIGITS}}:{self.topic_id}{note}"


def parse(metadata: str | None) -> Receipt | None:
    """Read the receipt at the beginning of the metadata; None where the job did not write it (a reset, a console)."""
    found = _FORM.match(metadata or "")
    if found is None:
        return None
    time = _TIME.match(found.string, found.end())
    return Receipt(found[1], int(found[3]), found[4], found[2] or None, int(time[1]) if time else None)
