"""End a child's process group when the process that started it dies, even by SIGKILL.

PR_SET_PDEATHSIG would not do: it fires when the starting thread ends, not the process, and it reaches the child alone,
not the child's children (spark-submit is a JVM that starts Python). So a small shell waits at a pipe whose other end
only we hold: at its end, without a word from us, it kills the group.
"""

from __future__ import annotations

import subprocess
from types import TracebackType
from typing import Self

# The first line names the group; the second says that all is well. An end instead means that we are gone.
_SCRIPT = 'read -r group || exit 0; read -r done || kill -s KILL -- "-$group"'


class Guard:
    """Watch over one process group for as long as this process lives."""

    def __init__(self) -> None:
        """Start the watch before the child, so that there is hardly a moment without it."""
        # In a session of its own, so that a Ctrl-C meant for us does not end it first.
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT], stdin=subprocess.PIPE, text=True, bufsize=1, start_new_session=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def watch(self, group: int) -> None:
        """Name the process group that must not outlive us."""
        self._say(f"{group}\n")

    def release(self) -> None:
        """End the watch without harm to the group; a second call does nothing."""
        self._say("done\n")
        if self._shell.stdin is not None:
            self._shell.stdin.close()
        self._shell.wait()

    def _say(self, line: str) -> None:
        if self._shell.stdin is None or self._shell.stdin.closed:
            return
        try:
            self._shell.stdin.write(line)
        except BrokenPipeError:
            return  # the shell has ended: there is nobody to tell
