"""Kill a child's process group when the process that started it ends, even by SIGKILL.

PR_SET_PDEATHSIG is not sufficient: it fires at the end of the starting thread, not of the process, and reaches only the
child, not its children (spark-submit is a JVM that starts Python). Instead a small shell reads from a pipe whose other
end only this process holds: at end of file without a release it kills the group.
"""

from __future__ import annotations

import subprocess
from typing import Self

# The first line names the group, the second releases it. End of file instead means that this process has ended.
_SCRIPT = 'read -r group || exit 0; read -r done || kill -s KILL -- "-$group"'


class Guard:
    """Guards one process group for the life of this process."""

    def __init__(self) -> None:
        """Start the guard before the child, to keep the unguarded moment short."""
        # In a session of its own, so that Ctrl-C does not end it.
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT], stdin=subprocess.PIPE, text=True, bufsize=1, start_new_session=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def watch(self, group: int) -> None:
        """Set the process group that must not outlive this process."""
        self._write(f"{group}\n")

    def release(self) -> None:
        """End the guard without killing the group; a second call does nothing."""
        self._write("done\n")
        if self._shell.stdin is not None:
            self._shell.stdin.close()
        self._shell.wait()

    def _write(self, line: str) -> None:
        if self._shell.stdin is None or self._shell.stdin.closed:
            return
        try:
            self._shell.stdin.write(line)
        except BrokenPipeError:
            return  # the shell has already ended
