"""The claim of a table: of two jobs on one table the older one ends, and never claims it again."""

import logging
import uuid
from dataclasses import replace

from cloud.errors import StopError
from cloud.stream.checkpoint import Checkpoint, Claim
from cloud.table.commits import CLAIM_ONLY, Commit
from cloud.table.sink import Sink

logger = logging.getLogger(__name__)


def is_first_start(checkpoint: Checkpoint, last: Commit | None) -> bool:
    """Whether the table has no commit of this checkpoint."""
    own = checkpoint.read_claim()
    return own is None or last is None or last.checkpoint != own.checkpoint


def claim_table(sink: Sink, checkpoint: Checkpoint, topic: str, topic_id: str, *, read_again: bool = False) -> Commit:
    """Claim the table for this checkpoint where needed, and return the table's last commit.

    With `read_again` a new checkpoint begins at the topic's earliest offset, whatever the table has read (decision 44).
    Raise StopError where another checkpoint has the table, or the checkpoint is of another table.
    """
    last = sink.last_commit()
    own = checkpoint.read_claim()
    is_first, has_batches = is_first_start(checkpoint, last), checkpoint.latest_batch() is not None
    if last is not None and not is_first and last.table != sink.id:
        raise StopError(
            f"table {sink.id}: its last commit is of this checkpoint and was for table {last.table}, in whose place "
            "this one was put while the job ran. Put the former table back, and start again; or continue with this "
            f"one, by a new checkpoint, --read-again and --succeeds {last.table}"
        )
    if own is None:
        if has_batches:
            raise StopError("the checkpoint has batches, but no claim: it is not of this job. Start with a new one")
        own = Claim(uuid.uuid4().hex, sink.last_claim() + 1)
        checkpoint.write_claim(own)
    elif last is not None and _is_restored(own, last, checkpoint.latest_batch()):
        # The batch ids repeat, and Delta would skip them under the old claim.
        own = Claim(own.checkpoint, sink.last_claim() + 1)
        checkpoint.write_claim(own)
    if last is None or own.number > last.claim:
        if is_first and has_batches:
            raise StopError(
                f"the checkpoint has batches, and table {sink.id} has none of them: it is another one, or was deleted "
                "and recreated. Spark would skip the records that it has read, and drop events as duplicates that this "
                "table lacks. Start with a new checkpoint"
            )
        return _commit_claim(sink, own, last, topic, topic_id, keeps_offsets=not (is_first and read_again))
    if (own.checkpoint, own.number) != (last.checkpoint, last.claim):
        raise StopError(
            f"claim {last.claim} of checkpoint {last.checkpoint} has taken over the table from claim {own.number} of "
            f"this checkpoint {own.checkpoint}: this job ends for good"
        )
    return last


def _commit_claim(
    sink: Sink, own: Claim, last: Commit | None, topic: str, topic_id: str, *, keeps_offsets: bool
) -> Commit:
    commit = Commit(sink.id, own.checkpoint, own.number, CLAIM_ONLY, topic, topic_id, {}, {}, {})
    if last is not None and keeps_offsets:
        commit = replace(commit, starts=last.ends, ends=last.ends, first=last.first, epochs=last.epochs)
    if last is not None and last.checkpoint == own.checkpoint:
        # A restored checkpoint continues with its state, and reads again the records that the state lacks.
        commit = replace(commit, birth=last.birth, window_seconds=last.window_seconds)
    sink.claim(commit)
    logger.info("table=%s claim=%d checkpoint=%s", sink.id, own.number, own.checkpoint)
    return commit


def _is_restored(own: Claim, last: Commit, latest_batch: int | None) -> bool:
    """Whether the checkpoint was restored from an older copy: the table has a later batch of it."""
    is_owner = (own.checkpoint, own.number) == (last.checkpoint, last.claim)
    return is_owner and last.batch > (CLAIM_ONLY if latest_batch is None else latest_batch)
