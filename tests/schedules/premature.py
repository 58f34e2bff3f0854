"""Marks and purges that come too early: an event that is processed or purged must be in the table at that moment.

Without this they would show only where Kafka loses the record before the job reads it.
"""

from collections.abc import Iterator, Sequence

import pytest

from agent.store.outbox import StoreOutbox
from agent.store.port import Batch
from agent.store.read.events import Epochs
from agent.store.write.removal import Removal
from contract.record import STATEMENT
from tests.schedules.kafka.cluster import Cluster
from tests.schedules.kafka.log import Record
from tests.schedules.spark import Table, fingerprint_of

Label = tuple[str, int]
"""Epoch and sequence."""


class Premature:
    """Compares what is marked as processed, and what is purged, with the table."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._fingerprints: dict[Label, bytes] = {}
        """Of all records that were ever appended."""
        self.found: list[str] = []

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        """Wrap the cluster's log and the agent's marks, for all lives."""
        append, mark, purge = Cluster.append, StoreOutbox.mark_processed, Removal._purge_piece

        def note_and_append(cluster: Cluster, partition: int, records: list[Record]) -> object:
            self._fingerprints |= {_label_of(record): fingerprint_of(record) for record in records}
            return append(cluster, partition, records)

        def check_and_mark(outbox: StoreOutbox, batches: Sequence[Batch]) -> None:
            for batch in batches:
                self._check("processed", outbox._memory.epochs, batch.first, batch.last)
            mark(outbox, batches)

        def check_and_purge(removal: Removal, up_to: int) -> None:
            memory = removal._memory
            for first, last in memory.progress._lost.holes(memory.first_kept, up_to):
                self._check("purged", memory.epochs, first, last)
            purge(removal, up_to)

        patch.setattr(Cluster, "append", note_and_append)
        patch.setattr(StoreOutbox, "mark_processed", check_and_mark)
        patch.setattr(Removal, "_purge_piece", check_and_purge)

    def _check(self, what: str, epochs: Epochs, first: int, last: int) -> None:
        rows = {fingerprint_of(row.record) for row in self._table.rows}
        for label in _labels(epochs, first, last):
            if self._fingerprints.get(label) not in rows:
                self.found.append(f"{what} before it is in the table: epoch {label[0]}, sequence {label[1]}")


def _labels(epochs: Epochs, first: int, last: int) -> Iterator[Label]:
    for span in epochs.label_ranges(first, last):
        yield from ((span.epoch, sequence) for sequence in range(span.first, span.last + 1))


def _label_of(record: Record) -> Label:
    _, epoch, sequence, *_ = dict(record.headers)[STATEMENT].decode().split(" ")
    return epoch, int(sequence)
