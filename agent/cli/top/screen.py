"""Uses the whole terminal as a screen, and restores it however the command ends."""

from __future__ import annotations

import io
import os
import select
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Self

from agent.cli.top.frame import Line
from agent.terminal import paint

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
"""The alternate screen, without a cursor (xterm's control sequences; the Linux console has the cursor only)."""
_HOME, _END_OF_LINE, _BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
_TERMINATED = 143
_CONTROL_CHARACTERS = 6
"""The place of the control characters in what tcgetattr returns."""


class Screen:
    """A context: within it, keys are read at once and without an echo."""

    def __enter__(self) -> Self:
        self._keys = sys.stdin.fileno() if sys.stdin.isatty() else None
        if self._keys is not None:
            self._saved = termios.tcgetattr(self._keys)
            tty.setcbreak(self._keys)
            changed = termios.tcgetattr(self._keys)
            changed[_CONTROL_CHARACTERS][termios.VSUSP] = b"\0"  # Ctrl-Z would leave the shell without a cursor
            termios.tcsetattr(self._keys, termios.TCSANOW, changed)
        self._signals, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        self._handlers = {
            number: signal.signal(number, handler)
            for number, handler in (
                (signal.SIGINT, signal.default_int_handler),  # it may be ignored, as in a script's background
                (signal.SIGTERM, _terminate),
                (signal.SIGHUP, _terminate),
                (signal.SIGWINCH, _ignore),
            )
        }
        if isinstance(sys.stdout, io.TextIOWrapper):  # a name may hold characters that the terminal's encoding lacks
            sys.stdout.reconfigure(errors="replace")
        self._write(_ENTER)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):  # the terminal may be closed
            self._write(_LEAVE)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(-1)
        os.close(self._signals)
        os.close(self._wake)
        if self._keys is not None:
            with suppress(termios.error):
                termios.tcsetattr(self._keys, termios.TCSADRAIN, self._saved)

    @property
    def size(self) -> tuple[int, int]:
        """The columns and rows of the terminal."""
        return shutil.get_terminal_size((80, 24))

    def draw(self, lines: Sequence[Line]) -> None:
        """Draw a frame over the one before."""
        painted = [paint(text, colour) if colour and text else text for text, colour in lines]
        self._write(_HOME + f"{_END_OF_LINE}\r\n".join(painted) + _END_OF_LINE + _BELOW)

    def wait(self, seconds: float) -> str:
        """Wait for a key, for a change of the screen's size, or for some time; return the key, empty where none is."""
        sources = [self._signals, *([] if self._keys is None else [self._keys])]
        ready, _, _ = select.select(sources, (), (), max(0.0, seconds))
        if self._signals in ready:
            os.read(self._signals, 64)
        if self._keys in ready and self._keys is not None:
            return os.read(self._keys, 64).decode("utf-8", "replace")
        return ""

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


def _terminate(_: int, __: FrameType | None) -> None:
    raise SystemExit(_TERMINATED)


def _ignore(_: int, __: FrameType | None) -> None:
    """Do nothing: the wakeup descriptor ends the wait."""
