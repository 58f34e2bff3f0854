"""The receipt's metadata: which table has read which topic's partition without a gap, and from which offset on.

A receipt is the offset that the processing group has committed; this text stands beside it, as
`oncegate:<table id>:<old table id>:<first>:<topic id>`. The old id is empty but where a job succeeds another table.
`first` has 20 digits. The topic's id, Kafka's own in base64url, stands last and has 22 characters, so that a reader
whose client gives bytes beyond the metadata's end knows where that is.
"""

import re
from dataclasses import dataclass

GROUP_DEFAULT = "oncegate-cloud"
FIRST_DIGITS = 20
TOPIC_ID_CHARACTERS = 22
_PREFIX = "oncegate"
_FORM = re.compile(rf"{_PREFIX}:([^:]+):([^:]*):([0-9]{{{FIRST_DIGITS}}}):([0-9A-Za-z_-]{{{TOPIC_ID_CHARACTERS}}})")


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
        return f"{_PREFIX}:{self.table}:{self.succeeds or ''}:{self.first:0{FIRST_DIGITS}}:{self.topic_id}"


def parse(metadata: str | None) -> Receipt | None:
    """Read the receipt at the metadata's beginning; None where it is not ours (a console consumer's, a reset's)."""
    found = _FORM.match(metadata or "")
    return None if found is None else Receipt(found[1], int(found[3]), found[4], found[2] or None)
