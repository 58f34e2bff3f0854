"""Tell systemd how we are (sd_notify(3)): a datagram to the socket that it names; without one, nothing."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 3_600
"""What a store of any size may take to be salvaged."""
_MICROSECONDS = 1_000_000
_ABSTRACT = "@"


class Notifier:
    """The socket of the service manager; what cannot be sent is not worth ending for."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        self.watchdog_seconds = _watchdog_seconds(environment)
        """How long we may be silent; None where nobody watches."""

    @property
    def listening(self) -> bool:
        """Whether anybody listens."""
        return bool(self._address)

    def ready(self, status: str) -> None:
        """Say that the service is up."""
        watched = "" if self.watchdog_seconds is None else f"\n{_watchdog(self.watchdog_seconds)}"
        self._send(f"READY=1\nSTATUS={status}{watched}")

    def busy(self, status: str) -> None:
        """Ask the watchdog for patience until we are ready again."""
        if self.watchdog_seconds is not None:
            self._send(f"STATUS={status}\n{_watchdog(PATIENCE_SECONDS)}")

    def status(self, text: str) -> None:
        """Show a line in `systemctl status`."""
        self._send(f"STATUS={text}")

    def waits(self, status: str) -> None:
        """Show what is waited for, and feed the watchdog: nothing hangs."""
        self._send(f"STATUS={status}\nWATCHDOG=1")

    def alive(self) -> None:
        """Feed the watchdog."""
        self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """Say that the end has begun."""
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
    """Read what systemd says (sd_watchdog_enabled(3)): it means the process that it names."""
    interval = environment.get("WATCHDOG_USEC", "")
    if not interval.isdigit() or environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    return int(interval) / _MICROSECONDS
