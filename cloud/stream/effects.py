"""The user's effects: called with the new rows of each batch, after its commit and before its receipts.

The table itself says which rows its latest batch has added, so that after a crash, on another host too, the same rows
are handed over under the same key, before any later batch. The checkpoint keeps the key of those that are done.
"""

from collections.abc import Callable
from dataclasses import dataclass

from cloud.errors import HookTimeError
from cloud.runtime.repeated import Repeated
from cloud.stream.checkpoint import Checkpoint
from cloud.table.commits import Commit
from cloud.table.sink import EffectsSink


@dataclass(frozen=True, slots=True)
class Effects:
    """Calls the user's function until it returns, one batch after the other."""

    _calls: Repeated
    _sink: EffectsSink
    _checkpoint: Checkpoint
    _flush: Callable[[], None]
    _wait: Callable[[float], bool]
    """Waits for a request to stop, at most the given seconds."""
    _tell: Callable[[Commit], None]
    """Tells the gateways that the effects of a commit fail."""

    def __call__(self, commit: Commit) -> bool:
        """Make the effects of the table's last commit where they are not done; return False if a stop was requested.

        Raise HookTimeError as `Repeated` does.
        """
        new = self._sink.new_rows()
        if new is None or new.key == self._checkpoint.read_done():
            return True
        self._flush()  # or a power cut may take the rows, and other ones come under the same key
        try:
            while (delay := self._calls.attempt(new.rows, new.key)) is not None:
                self._tell(commit)
                if self._wait(delay):
                    return False
        except HookTimeError:
            self._tell(commit)
            raise
        self._checkpoint.write_done(new.key)
        return True
