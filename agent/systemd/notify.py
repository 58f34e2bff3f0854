"""Notifies systemd of the service's state (sd_notify(3)), where it has named a socket."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping

log = logging.getLogger(__name__)

SALVAGE_SECONDS_MAX = 3_600
"""How long the salvage of a store of any size may take."""
_MICROSECONDS = 1_000_000
_ABSTRACT = "@"


class Notifier:
    """The socket of the service manager; failures to send are only logged."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        self.watchdog_seconds = _watchdog_seconds(environment)
        """The watchdog's interval; None where there is no watchdog."""

    @property
    def listening(self) -> bool:
        """Whether systemd has named a socket."""
        return bool(self._address)

    def ready(self, status: str) -> None:
        """Report that the service is up."""
        watched = "" if self.watchdog_seconds is None else f"\n{_watchdog(self.watchdog_seconds)}"
        self._send(f"READY=1\nSTATUS={status}{watched}")

    def busy(self, status: str) -> None:
        """Extend the watchdog's interval until the service is ready again."""
        if self.watchdog_seconds is not None:
            self._send(f"STATUS={status}\n{_watchdog(SALVAGE_SECONDS_MAX)}")

    def status(self, text: str) -> None:
        """Set the status line of `systemctl status`."""
        self._send(f"STATUS={text}")

    def waiting(self, status: str) -> None:
        """Set the status line while waiting, and feed the watchdog."""
        self._send(f"STATUS={status}\nWATCHDOG=1")

    def alive(self) -> None:
        """Feed the watchdog."""
        self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """Report that the service is stopping."""
        self._send("STOPPING=1")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        address = f"\0{self._address[1:]}" if self._address.startswith(_ABSTRACT) else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
                sender.sendto(message.encode(), address)
        except OSError as error:
            log.warning("systemd=unreachable reason=%r", str(error))


def _watchdog(seconds: float) -> str:
    return f"WATCHDOG_USEC={round(seconds * _MICROSECONDS)}"


def _watchdog_seconds(environment: Mapping[str, str]) -> float | None:
    """Return the watchdog's interval for this process, None without one (sd_watchdog_enabled(3))."""
    interval = environment.get("WATCHDOG_USEC", "")
    if not interval.isdigit() or environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    return int(interval) / _MICROSECONDS
