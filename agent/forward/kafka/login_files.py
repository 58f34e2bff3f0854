"""Detects replaced login files of the clients: certificates, keys, authorities, secrets.

librdkafka reads them when a client is opened, and never again. So a renewed file needs new clients.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from agent.clock import Clock
from agent.config.readers import Span
from agent.config.settings import KafkaSettings
from agent.forward.errors import KafkaSettingsError, RenewalError
from agent.forward.kafka.client import FILE_SUFFIXES, LastError, given_properties, open_admin, open_signer
from agent.renewal import WatchedFiles
from contract.record import ClockTrust

CHECK_MS: Final = 2_000
"""How often the files are checked."""

_log = logging.getLogger(__name__)


class LoginFiles:
    """The state of the files when a session's clients are opened; make one before that."""

    def __init__(self, settings: KafkaSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._looked = clock.monotonic_ms()
        self._files = WatchedFiles(partial(_places, settings))

    def renewed(self) -> bool:
        """Whether the files were replaced by usable ones; looks every CHECK_MS."""
        now = self._clock.monotonic_ms()
        if now - self._looked < CHECK_MS:
            return False
        self._looked = now
        if not (replaced := ",".join(map(str, self._files.replaced()))):
            return False
        try:
            open_admin(self._settings, LastError())
            open_signer(self._settings)
        except KafkaSettingsError as error:  # the session keeps those that it has read
            self._files.refuse()
            _log.warning("login=unusable files=%s reason=%r", replaced, str(error))
            return False
        _log.info("login=renewed files=%s", replaced)
        return True


class SessionStop(threading.Event):
    """Set where the agent stops, or where a session should end: its files were renewed, or the hours are over."""

    def __init__(self, stop: threading.Event, files: LoginFiles, hours: Hours) -> None:
        super().__init__()
        self.has_left: Callable[[], bool] = lambda: False
        """Whether the session still sends something before the agent stops."""
        self._hours = hours
        self._stop = stop
        self._files = files

    @property
    def renewed(self) -> bool:
        """Whether the session should end because of its files or the hours."""
        return super().is_set()

    def is_set(self) -> bool:
        """Check the files where that is due, and the hours."""
        is_running = not super().is_set() and not self._stop.is_set()
        if is_running and (self._files.renewed() or not self._hours.include_now()):
            self.set()
        return super().is_set() or (self._stop.is_set() and not self.has_left())

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the agent stops; nothing else ends a wait."""
        if self._stop.is_set() and self.has_left():
            return super().wait(timeout)
        return self._stop.wait(timeout) or super().is_set()


def login_files(settings: KafkaSettings) -> dict[str, Path]:
    """Return the files that the properties name, by property; raise KafkaSettingsError."""
    found = {
        name: Path(value)
        for name, value in given_properties(settings).items()
        if name.endswith(FILE_SUFFIXES) and value
    }
    if settings.properties_file is not None:
        found["properties_file"] = settings.properties_file
    if settings.mac_key_file is not None:
        found["mac_key_file"] = settings.mac_key_file
    return found


def _places(settings: KafkaSettings) -> Iterable[Path]:
    try:
        return login_files(settings).values()
    except KafkaSettingsError:  # a file that is just being written
        return [path for path in (settings.properties_file, settings.mac_key_file) if path is not None]


CHECK_SECONDS: Final = 1.0
"""How often it is checked whether the hours have begun."""
_DAY_MINUTES: Final = 24 * 60


class Hours:
    """Spans of local time; without any, and while the clock is untrusted, all hours count."""

    def __init__(self, spans: Sequence[Span], clock: Clock) -> None:
        self._spans = spans
        self._clock = clock

    def include_now(self) -> bool:
        return self.next_begin() is None

    def next_begin(self) -> str | None:
        """Return the local time from which the uplink may be used, such as `22:00`; None where it may now."""
        if not self._spans or self._clock.trust() is ClockTrust.UNTRUSTED:
            return None
        local = time.localtime(self._clock.wall_ms() / 1000)
        minute = local.tm_hour * 60 + local.tm_min
        if any((minute - first) % _DAY_MINUTES < (last - first) % _DAY_MINUTES for first, last in self._spans):
            return None
        begin = min((first for first, _ in self._spans), key=lambda first: (first - minute) % _DAY_MINUTES)
        return f"{begin // 60:02}:{begin % 60:02}"


STEP_MS_MAX: Final = 1_000
"""A smaller step lengthens a wait by a negligible time."""


class WallSteps:
    """Compares the wall clock with the monotonic one, from one check to the next (decision 38)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead = self._difference()

    def check(self) -> None:
        """Raise RenewalError where the wall clock was set back since the last check."""
        before, self._ahead = self._ahead, self._difference()
        if before - self._ahead > STEP_MS_MAX:
            raise RenewalError(f"the wall clock was set back by {(before - self._ahead) / 1000:.0f} s")

    def _difference(self) -> int:
        return self._clock.wall_ms() - self._clock.monotonic_ms()
