"""What every commit of the table says of itself: whose it is, and how far the table has read the topic."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace

from cloud.errors import StopError

FORMAT = 1
BATCH_BITS = 40
CLAIM_ONLY = -1
"""The batch id of the empty commit by which a checkpoint claims the table."""

_KEPT = "kept"

Offsets = dict[int, int]


@dataclass(frozen=True, slots=True)
class Commit:
    """The userMetadata of a commit; offsets by partition, moments in milliseconds since 1970 UTC."""

    table: str
    checkpoint: str
    claim: int
    batch: int
    topic: str
    topic_id: str
    starts: Offsets
    ends: Offsets
    """Where each partition is to be read on: all below, down to `first`, is in the table or in quarantine."""
    first: Offsets
    birth: int | None = None
    """Since when this checkpoint's state has seen every record, at a time that is not too early; None before that."""
    window_seconds: int | None = None
    epochs: Offsets = field(default_factory=dict)
    """The leader epochs under which the log held all up to `ends`; without partitions whose broker does not say."""

    @property
    def version(self) -> int:
        """The txnVersion: grows with each claim and with each batch; the claim itself stands below its batches."""
        return self.claim << BATCH_BITS | (self.batch + 1)

    def born_after(self, moment: int | None) -> Commit:
        """Return the commit with a birth that is no earlier than a moment."""
        return self if moment is None else replace(self, birth=max(moment, self.birth or moment))

    def is_by_same(self, other: Commit) -> bool:
        """Whether both are the same commit of the same owner."""
        return (self.checkpoint, self.claim, self.batch) == (other.checkpoint, other.claim, other.batch)


@dataclass(frozen=True, slots=True)
class Removal:
    """A commit of somebody else that took rows away."""

    version: int
    operation: str


@dataclass(frozen=True, slots=True)
class Kept:
    """What Delta's log may have forgotten where a job's last commit stands once more."""

    version: int
    """The table's version up to which rows taken away since the job's commit were looked for."""
    removal: Removal | None
    """What was found."""


def to_json(commit: Commit, kept: Kept | None = None) -> str:
    """Write the userMetadata; `kept`: once more, by maintenance."""
    fields = {"oncegate": FORMAT, **asdict(commit), **({_KEPT: asdict(kept)} if kept else {})}
    return json.dumps(fields, separators=(",", ":"), sort_keys=True)


def parse_kept(metadata: str | None) -> Kept | None:
    """Read what maintenance adds to a commit that it writes once more; the job's own may stand beside it."""
    if f'"{_KEPT}":' not in (metadata or "") or parse(metadata) is None:
        return None
    kept = json.loads(metadata or "")[_KEPT]
    return Kept(kept["version"], None if kept["removal"] is None else Removal(**kept["removal"]))


def parse(metadata: str | None) -> Commit | None:
    """Read the userMetadata; None where the commit is not ours (maintenance, somebody's statement)."""
    try:
        fields = json.loads(metadata or "null")
    except ValueError:
        return None
    if not isinstance(fields, dict) or "oncegate" not in fields:
        return None
    if (written := fields.pop("oncegate")) != FORMAT:
        raise StopError(f"the table's commits have format {written}, this job knows {FORMAT}: use a newer job")
    fields.pop(_KEPT, None)
    for name in ("starts", "ends", "first", "epochs"):
        fields[name] = {int(partition): int(offset) for partition, offset in fields[name].items()}
    return Commit(**fields)
