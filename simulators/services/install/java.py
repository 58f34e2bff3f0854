"""The Java runtime that Kafka and Spark use: found, or installed where that is permitted."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from cloud.jars import java
from cloud.jars.java import VERSION_MIN, home
from simulators.services.error import ServiceError
from simulators.services.install import debian

__all__ = ["find", "home", "install", "require"]

PACKAGE = "openjdk-17-jre-headless"
find = java.find


def require(environment: Mapping[str, str] = os.environ) -> Path:
    """Return a `java`; without any, raise ServiceError with the command that installs one."""
    found = find(environment)
    if found is None:
        raise ServiceError(f"no Java runtime {VERSION_MIN} or newer in JAVA_HOME or PATH; run: {_install_by_hand()}")
    return found


def install() -> Path:
    """Return a `java`; without any, install Debian's as root or by sudo without a password."""
    found = find()
    if found is not None:
        return found
    if shutil.which("apt-get") is None or debian.as_root() is None:
        return require()
    debian.install(PACKAGE)
    return require()


def _install_by_hand() -> str:
    return debian.by_hand(PACKAGE) if shutil.which("apt-get") else "your system's installer for OpenJDK 17"
