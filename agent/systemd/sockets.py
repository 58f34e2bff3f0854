"""The sockets that the agent listens on, which systemd keeps while the agent restarts, and passes to the next one.

So the ports are never free, and what arrives meanwhile waits. See sd_listen_fds(3), and `FDSTORE=1` in sd_notify(3).
"""

import logging
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from agent.systemd.notifier import Notifier

_FIRST: Final = 3
"""The number of the first passed descriptor (SD_LISTEN_FDS_START)."""
_KEPT: Final = "kept-"
"""Begins the names of our own sockets, as opposed to those of a socket unit."""

_log = logging.getLogger(__name__)


class PassedSocketError(Exception):
    """A passed descriptor is no socket, or fits no address of the configuration."""


class Sockets:
    """Sockets that were passed to this process, and those that are kept for the next one."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self.notifier = Notifier(environment)
        self._unused = list(_passed(environment))
        self._used: list[tuple[str, socket.socket]] = []

    def listen(
        self, kind: socket.SocketKind, address: tuple[Any, ...], bind: Callable[[], socket.socket]
    ) -> socket.socket:
        """As `agent.listening.Listen`."""
        for one in self._unused:
            if _fits(one[1], kind, address):
                self._unused.remove(one)
                self._used.append(one)
                return one[1].dup()
        name = f"{_KEPT}{kind.name}-{address[1]}"
        self._forget(name)  # of another address with this port, which it would occupy
        bound = bind()
        if self.notifier.listening:
            self._used.append((name, bound.dup()))
            self.notifier.keep(name, bound.fileno())
        return bound

    def check(self) -> None:
        """Release what no way in uses any more; raise PassedSocketError where a socket unit's is unused."""
        self.release()
        for name, passed in self._unused:
            raise PassedSocketError(
                f"systemd passes {passed.type.name} {passed.getsockname()} ({name}), which is no bind of the "
                f"configuration: in the socket unit, use the same address, [::ffff:…] for IPv4 over CoAP, and "
                f"BindIPv6Only=both"
            )
        self._unused, self._used = self._used, []  # for the ways in that are opened after a salvage

    def release(self) -> None:
        """Close the kept sockets that no way in uses yet."""
        for name, _ in tuple(self._unused):
            if name.startswith(_KEPT):
                self._forget(name)

    def _forget(self, name: str) -> None:
        for one in [one for one in self._unused if one[0] == name]:
            _log.info("systemd=socket-released address=%s", one[1].getsockname())
            self._unused.remove(one)
            one[1].close()
            self.notifier.forget(name)


def _passed(environment: Mapping[str, str]) -> Iterator[tuple[str, socket.socket]]:
    count = environment.get("LISTEN_FDS", "")
    if environment.get("LISTEN_PID") != str(os.getpid()) or not count.isdecimal():
        return
    names = environment.get("LISTEN_FDNAMES", "").split(":")
    for index in range(int(count)):
        name, descriptor = names[index] if index < len(names) else "", _FIRST + index
        try:
            os.set_inheritable(descriptor, False)
            yield name, socket.socket(fileno=descriptor)
        except OSError as error:
            what = f"systemd passes descriptor {descriptor} ({name}), which is no socket: {error.strerror}"
            raise PassedSocketError(what) from error


def _fits(passed: socket.socket, kind: socket.SocketKind, address: tuple[Any, ...]) -> bool:
    return (
        passed.type == kind
        and passed.getsockname() == address
        and not (passed.family == socket.AF_INET6 and passed.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY))
    )
