"""Why no further batch may go to a table: what each kind of it says alike."""

from __future__ import annotations

from cloud.errors import StopError
from cloud.table.commits import Commit


def replaced(table: str, opened: str, present: str) -> StopError:
    """Return the error for another table in the place of the one that was opened, by their ids."""
    return StopError(
        f"table {table}: it has the id {present}, and this job has opened the table {opened}: another one was put in "
        "its place while the job ran. Nothing more is receipted. Put the former table back, and start again; or "
        f"continue with the present one, by a new checkpoint, --read-again and --succeeds {opened}"
    )


def removed(table: str, by: str) -> StopError:
    """Return the error for rows that another program has removed."""
    return StopError(
        f"table {table}: {by} by another program, has removed rows that were receipted. Start with a new checkpoint: "
        "with --read-again to restore those that the topic still has, or without it to leave them out"
    )


def claimed(table: str, last: object) -> StopError:
    """Return the error for a table whose last commit is of a younger claim."""
    return StopError(f"table {table}: another job has claimed it since ({last}); this job ends for good")


def copied(table: str, commit: Commit) -> StopError:
    """Return the error for a batch that another job has written under this job's claim."""
    return StopError(
        f"table {table}: another job has written batch {commit.batch} under the same claim, so it runs on a copy of "
        f"this job's checkpoint {commit.checkpoint}. Nothing of this job's batch is written or receipted. End one of "
        "the two for good; start this one, if it is to continue, with a new checkpoint"
    )


def compacted(table: str, file: str, commit: Commit) -> StopError:
    """Return the error for new rows whose file is gone before their effects were made."""
    return StopError(
        f"table {table}: {file} is gone, with rows of batch {commit.batch} whose effects are not done: maintenance has "
        "compacted the table and removed its old files while the job was stopped. Make these effects by hand, for the "
        f"rows whose kafka_offset is in {commit.starts} to {commit.ends}, start once without --effects until the next "
        "batch is written, and go on with it"
    )
