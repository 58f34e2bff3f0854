"""Find a Java runtime that is new enough for Spark."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from cloud.jars.coordinates import JarError

VERSION_MIN = 17
_SYSTEM_RUNTIMES = Path("/usr/lib/jvm")
_PROBE_SECONDS_MAX = 20
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_RELEASE = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)


def require(environment: Mapping[str, str] = os.environ) -> Path:
    """Return a `java`; raise JarError without any."""
    if (java := find(environment)) is None:
        raise JarError(
            f"no Java runtime {VERSION_MIN} or newer in JAVA_HOME or PATH; on Debian install openjdk-17-jre-headless "
            "or openjdk-21-jre-headless"
        )
    return java


def find(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the first sufficiently new `java` of $JAVA_HOME, $PATH and the system's runtimes; None without any."""
    for java in _candidates(environment):
        if java.is_file() and (_version(java) or 0) >= VERSION_MIN:
            return java
    return None


def home(java: Path) -> Path:
    """Return the JAVA_HOME of a `java`."""
    return java.resolve().parent.parent


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    if chosen := environment.get("JAVA_HOME"):
        yield Path(chosen) / "bin" / "java"
    if on_path := shutil.which("java", path=environment.get("PATH")):
        yield Path(on_path)
    if _SYSTEM_RUNTIMES.is_dir():
        yield from sorted(_SYSTEM_RUNTIMES.glob("*/bin/java"))


def _version(java: Path) -> int | None:
    """Return the major version, from the release file where it exists, which avoids starting a JVM."""
    release = home(java) / "release"
    match = _RELEASE.search(release.read_text(errors="replace")) if release.is_file() else None
    return int(match[1]) if match else _version_by_running(java)


def _version_by_running(java: Path) -> int | None:
    try:
        output = subprocess.run(
            [java, "-version"], capture_output=True, text=True, check=False, timeout=_PROBE_SECONDS_MAX
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(output)
    return int(match[1]) if match else None
