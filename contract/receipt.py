"""The receipt's metadata: which table has read which topic's partition without a gap, and from which offset on.

A receipt is the offset that the processing group has committed; this text stands beside it, as
`oncegate:<table id>:<first>:<topic id>`. A job that succeeds another table names the old id too, as
`oncegate:<table id>:<first>:<topic id>:<old table id>`. `first` has 20 digits and the topic's id, Kafka's own in
base64url, 22 characters, so that a reader whose client gives bytes beyond the metadata's end knows where they end.
"""

import re
from dataclasses import dataclass

GROUP_DEFAULT = "oncegate-cloud"
FIRST_DIGITS = 20
TOPIC_ID_CHARACTERS = 22
_PREFIX = "oncegate"
_FORM = re.compile(
    rf"{_PREFIX}:([^:]+):([0-9]{{{FIRST_DIGITS}}}):([0-9A-Za-z_-]{{{TOPIC_ID_CHARACTERS}}})(?::([0-9A-Za-z-]+))?"
)


@dataclass(frozen=True, slots=True)
class Receipt:
    """What the job says of one partition: its table holds all from `first` up to the committed offset."""

    table: str
    first: int
    topic_id: str
    """The offsets are of the topic with this id; one that was deleted and recreated under its name has another."""
    succeeds: str | None = None

    def __str__(self) -> str:
        """Write the metadata."""
        parts = [_PREFIX, self.table, f"{self.first:0{FIRST_DIGITS}}", self.topic_id]
        if self.succeeds is not None:
            parts.append(self.succeeds)
        return ":".join(parts)


def parse(metadata: str | None) -> Receipt | None:
    """Read the receipt at the metadata's beginning; None where it is not ours (a console consumer's, a reset's)."""
    found = _FORM.match(metadata or "")
    return None if found is None else Receipt(found[1], int(found[2]), found[3], found[4])
