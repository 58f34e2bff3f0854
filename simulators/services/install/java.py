"""The Java runtime that Kafka and Spark use: found, or installed where that is permitted."""

import shutil
from pathlib import Path

from cloud.jars.java import VERSION_MIN, find, home
from simulators.services.error import ServiceError
from simulators.services.install import debian

__all__ = ["home", "install", "require"]

PACKAGE = "openjdk-17-jre-headless"


def require() -> Path:
    """Return a `java`; without any, raise ServiceError with the command that installs one."""
    found = find()
    if found is None:
        by_hand = debian.by_hand(PACKAGE) if shutil.which("apt-get") else "your system's installer for OpenJDK 17"
        raise ServiceError(f"no Java runtime {VERSION_MIN} or newer in JAVA_HOME or PATH; run: {by_hand}")
    return found


def install() -> Path:
    """Return a `java`; without any, install Debian's as root or by sudo without a password."""
    if find() is None and shutil.which("apt-get") is not None and debian.as_root() is not None:
        debian.install(PACKAGE)
    return require()
