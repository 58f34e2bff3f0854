"""The external programs that tests run, with their Debian packages."""

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
    "fusermount3": "fuse3",
    "initdb": "postgresql",
    "postgres": "postgresql",
    "systemd-analyze": "systemd",
    "groff": "groff-base",
    "shellcheck": "shellcheck",
    "zsh": "zsh",
}
HEAVY_PACKAGES = {
    "mmdebstrap": "mmdebstrap",
    "systemd-nspawn": "systemd-container",
    "lintian": "lintian",
    "chromium": "chromium",
    "npm": "npm",
    "cc": "build-essential",
    "javac": "default-jdk-headless",
    "psql": "postgresql-client",
    "pg_dump": "postgresql-client",
    "pg_restore": "postgresql-client",
    "strace": "strace",
    "qemu-aarch64-static": "qemu-user-static",
    "arch-test": "arch-test",
}
"""Programs that only heavy tests run."""
_PATH_MORE = "/usr/local/sbin:/usr/sbin:/sbin"
"""Folders of server programs, which may be missing in PATH."""
_POSTGRESQL = Path("/usr/lib/postgresql")
"""Debian's folder of each version's programs."""


def find(program: str) -> str | None:
    """Return a program's path; None where it is not installed."""
    more = ":".join([_PATH_MORE, *map(str, sorted(_POSTGRESQL.glob("*/bin"), reverse=True))])
    return shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}:{more}")


def require(program: str) -> str:
    """Return a program's path; raise ServiceError with the command that installs it where it is missing."""
    found = find(program)
    if found is None:
        raise ServiceError(f"no {program}; run: {debian.by_hand({**HEAVY_PACKAGES, **PACKAGES}[program])}")
    return found


def install(packages: Mapping[str, str] = PACKAGES) -> None:
    """Install the packages of missing programs."""
    missing = sorted({package for program, package in packages.items() if find(program) is None})
    if missing:
        debian.install(*missing)
