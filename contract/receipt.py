"""The receipt's metadata: whose table has read a partition without a gap, and from which offset on.

A receipt is the offset that the processing group has committed; this text stands beside it, as
`oncegate:<table id>:<first>`. A job that succeeds another table names the old id too, as
`oncegate:<table id>:<first>:<old table id>`. `first` is written with 20 digits, so that a reader whose client gives
bytes beyond the metadata's end knows where the number ends; it is read with fewer, too.
"""

from dataclasses import dataclass

GROUP_DEFAULT = "oncegate-cloud"
FIRST_DIGITS = 20
_PREFIX = "oncegate"


@dataclass(frozen=True, slots=True)
class Receipt:
    """What the job says of one partition: its table holds all from `first` up to the committed offset."""

    table: str
    first: int
    succeeds: str | None = None

    def __str__(self) -> str:
        """Write the metadata."""
        parts = [_PREFIX, self.table, f"{self.first:0{FIRST_DIGITS}}"]
        if self.succeeds is not None:
            parts.append(self.succeeds)
        return ":".join(parts)


def parse(metadata: str | None) -> Receipt | None:
    """Read the metadata; None where it is not ours (a console consumer's commit, a reset of the group)."""
    parts = (metadata or "").split(":")
    if (
        len(parts) not in (3, 4)
        or parts[0] != _PREFIX
        or not parts[1]
        or not (parts[2].isascii() and parts[2].isdigit())
    ):
        return None
    return Receipt(parts[1], int(parts[2]), parts[3] if len(parts) == 4 and parts[3] else None)
