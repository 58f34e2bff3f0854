"""The user's effects for rows as dicts: after the commit, and before the receipts of the partitions of their rows.

The table keeps the new rows of each batch, in its transaction, until their effects are done: whoever takes over the
partitions makes them first, under the same key.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cloud.errors import HookTimeError
from cloud.plain_consumer.table import ConsumerTable
from cloud.runtime.repeated import Repeated


@dataclass(slots=True)
class DueEffects:
    """Makes the due effects; a failed call is repeated by a later call of this, after its delay."""

    _calls: Repeated
    _table: ConsumerTable
    _next_at: float = 0.0

    def __call__(self, partitions: Iterable[int], tell: Callable[[], None]) -> bool:
        """Return whether the effects of all rows of these partitions are done; raise HookTimeError as `Repeated`.

        `tell` is called after a failure.
        """
        if time.monotonic() < self._next_at:
            return False
        for batch in self._table.due(partitions):
            try:
                delay = self._calls.attempt(self._table.new_rows(batch), f"{self._table.id}-{batch}")
            except HookTimeError:
                tell()
                raise
            if delay is not None:
                self._next_at = time.monotonic() + delay
                tell()
                return False
            self._table.done(batch)
        return True
