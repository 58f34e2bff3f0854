"""The metadata of a commit of the table: its owner, and how far the table has read the topic (decision 5)."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace

from cloud.errors import StopError
from contract.notes import read_note

FORMAT = 1
BATCH_BITS = 40
CLAIM_ONLY = -1
"""The batch id of the empty commit by which a checkpoint claims the table."""

Offsets = dict[int, int]


@dataclass(frozen=True, slots=True)
class Commit:
    """The userMetadata of a commit; offsets by partition, times in milliseconds since 1970 UTC."""

    table: str
    checkpoint: str
    claim: int
    batch: int
    topic: str
    topic_id: str
    starts: Offsets
    ends: Offsets
    """Offsets at which reading continues: the table or the quarantine has all records from `first` up to here."""
    first: Offsets
    birth: int | None = None
    """Since when this checkpoint's state contains every record, with a time that is not too early; None if never."""
    window_seconds: int | None = None
    epochs: Offsets = field(default_factory=dict)
    """The leader epochs under which the log had all records up to `ends`, of partitions where they are known."""

    @property
    def version(self) -> int:
        """Return the txnVersion, which grows with each claim and each batch; a claim's own is below its batches'."""
        return self.claim << BATCH_BITS | (self.batch + 1)

    def born_after(self, time_ms: int | None) -> Commit:
        """Return the commit with a birth not earlier than `time_ms`; unchanged for None."""
        return self if time_ms is None else replace(self, birth=max(time_ms, self.birth or time_ms))

    def is_by_same(self, other: Commit) -> bool:
        """Whether both describe the same batch under the same claim."""
        return (self.checkpoint, self.claim, self.batch) == (other.checkpoint, other.claim, other.batch)


def to_json(commit: Commit) -> str:
    """Return the userMetadata."""
    return json.dumps({"oncegate": FORMAT, **asdict(commit)}, separators=(",", ":"), sort_keys=True)


def parse(metadata: str | None) -> Commit | None:
    """Read the userMetadata; None where the job has not written it (OPTIMIZE, another program's statement)."""
    try:
        fields = json.loads(metadata or "null")
    except ValueError:
        return None
    if not isinstance(fields, dict) or "oncegate" not in fields:
        return None
    if (written := fields.pop("oncegate")) != FORMAT:
        raise StopError(
            f"the table's commits have format {written}, this job supports {FORMAT}: a newer job writes it, or "
            "`oncegate-cloud consumer`"
        )
    for name in {"starts", "ends", "first", "epochs"} & fields.keys():
        fields[name] = {int(partition): int(offset) for partition, offset in fields[name].items()}
    return read_note(Commit, fields)
