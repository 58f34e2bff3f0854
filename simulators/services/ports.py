"""Find ports that stay free while the service that uses them is down."""

import random
import socket

from simulators.services.error import ServiceError

# Below the kernel's ephemeral range (32768 to 60999), where an outgoing connection may take the port of a broker that
# is being restarted.
_FIRST = 20_000
_LAST = 32_000
_ATTEMPTS_MAX = 200


def free(count: int, kind: socket.SocketKind = socket.SOCK_STREAM) -> list[int]:
    """Return distinct free ports of 127.0.0.1."""
    chosen: list[int] = []
    for _ in range(_ATTEMPTS_MAX):
        port = random.SystemRandom().randint(_FIRST, _LAST)
        if port not in chosen and _is_free(port, kind):
            chosen.append(port)
        if len(chosen) == count:
            return chosen
    raise ServiceError(f"no {count} free ports between {_FIRST} and {_LAST}")


def is_listening(port: int) -> bool:
    """Whether something accepts TCP connections on this port of 127.0.0.1."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _is_free(port: int, kind: socket.SocketKind) -> bool:
    with socket.socket(socket.AF_INET, kind) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
