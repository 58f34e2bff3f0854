"""The programs of others that the tests run: which there are, and the Debian package that brings each."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from simulators.services.error import ServiceError
from simulators.services.install import debian

PACKAGES = {
    "mosquitto": "mosquitto",
    "mosquitto_passwd": "mosquitto",
    "mosquitto_pub": "mosquitto-clients",
    "coap-client-notls": "libcoap3-bin",
    "openssl": "openssl",
    "faketime": "faketime",
    "initdb": "postgresql",
    "postgres": "postgresql",
    "systemd-analyze": "systemd",
}
HEAVY_PACKAGES = {
    "mmdebstrap": "mmdebstrap",
    "systemd-nspawn": "systemd-container",
    "lintian": "lintian",
    "chromium": "chromium",
    "npm": "npm",
    "cc": "build-essential",
}
"""Those that only heavy tests run."""
_PATH_MORE = "/usr/local/sbin:/usr/sbin:/sbin"
"""Where servers lie; not in everybody's PATH."""
_POSTGRESQL = Path("/usr/lib/postgresql")
"""Debian keeps each version's programs in a folder of its own."""


def find(program: str) -> str | None:
    """Return a program's path, None without it."""
    more = ":".join([_PATH_MORE, *map(str, sorted(_POSTGRESQL.glob("*/bin"), reverse=True))])
    return shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}:{more}")


def require(program: str) -> str:
    """Return a program's path; without it, the error names the command that installs it."""
    found = find(program)
    if found is None:
        raise ServiceError(f"no {program}; run: {debian.by_hand({**HEAVY_PACKAGES, **PACKAGES}[program])}")
    return found


def install(packages: Mapping[str, str] = PACKAGES) -> None:
    """Install the packages whose program is missing."""
    missing = sorted({package for program, package in packages.items() if find(program) is None})
    if missing:
        debian.install(*missing)
