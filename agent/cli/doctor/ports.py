"""The ports that the agent listens on, and the programs that use them."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from pathlib import Path

from agent.cli.doctor.finding import Finding, fine, wrong
from agent.config import ways
from agent.config.settings import Settings
from agent.store.layout import FILE_NAME
from agent.store.schema import database

PROC = Path("/proc")
_LISTENING = "0A"
"""TCP's state in /proc/net/tcp."""


def check_ports(settings: Settings) -> Iterator[Finding]:
    """Check that the ports are used by the agent, or free."""
    runs = database.in_use(settings.gateway.state_dir / FILE_NAME)
    for name, way in ways.enabled(settings).items():
        if way.listens is not None:
            section = name if name in ways.OWN else f"{ways.SECTION}{name}"
            part = settings.sources[name] if name in settings.sources else getattr(settings, name)
            yield _check(f"{section}.bind", part.bind, way.listens, runs=runs)


def _check(name: str, bind: str, kind: socket.SocketKind, *, runs: bool) -> Finding:
    host, _, port = bind.rpartition(":")
    protocol = "UDP" if kind is socket.SOCK_DGRAM else "TCP"
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=kind, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        return wrong("ports", f"{name}: {bind!r} is not [address]:port", "see docs/configuration.md")
    family, _, _, _, address = found[0]
    try:
        _bind(family, kind, address)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            hint = f"set {name} to an address of this machine"
            return wrong("ports", f"{name}: {protocol} {bind}: {error.strerror}", hint)
        if runs:
            return fine("ports", f"{name}: {protocol} {bind} is in use, and the agent runs")
        owner = _owner(int(port), kind)
        return wrong("ports", f"{name}: {protocol} {bind} is in use by {owner}", f"stop it, or change {name}")
    if runs and int(port):
        return wrong("ports", f"{name}: the agent runs, but does not listen on {protocol} {bind}", "restart the agent")
    return fine("ports", f"{name}: {protocol} {bind} is free")


def _bind(family: int, kind: socket.SocketKind, address: tuple[object, ...]) -> None:
    with socket.socket(family, kind) as probe:
        if kind is socket.SOCK_STREAM:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the agent does
        if family == socket.AF_INET6:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        probe.bind(address)


def _owner(port: int, kind: socket.SocketKind) -> str:
    """Return the name of the process that uses a port, where it is visible."""
    protocol = "udp" if kind is socket.SOCK_DGRAM else "tcp"
    inodes = set()
    for table in (f"{protocol}", f"{protocol}6"):
        for line in (PROC / "net" / table).read_text().splitlines()[1:]:
            fields = line.split()
            if int(fields[1].rpartition(":")[2], 16) == port and (protocol == "udp" or fields[3] == _LISTENING):
                inodes.add(f"socket:[{fields[9]}]")
    for process in PROC.glob("[0-9]*"):
        try:
            if any(str(descriptor.readlink()) in inodes for descriptor in (process / "fd").iterdir()):
                return f"{(process / 'comm').read_text().strip()} (process {process.name})"
        except OSError:
            continue  # it has ended, or is not accessible
    return "another process"
