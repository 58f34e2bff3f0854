"""How the ways in get the sockets that they listen on."""

import socket
from collections.abc import Callable
from typing import Any


class BindError(Exception):
    """The address cannot be listened on: do not retry before the configuration or the machine has changed."""


Listen = Callable[[socket.SocketKind, tuple[Any, ...], Callable[[], socket.socket]], socket.socket]
"""Returns a socket of this kind, bound to the address as `getsockname` has it: passed, or what `bind` opens."""


def listen_anew(_: socket.SocketKind, __: tuple[Any, ...], bind: Callable[[], socket.socket]) -> socket.socket:
    """Bind a socket that nobody keeps."""
    return bind()
