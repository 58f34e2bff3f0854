"""Pinned jars, and the lock file that pins them."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

LOCK_FILE = Path(__file__).with_name("jars.lock")
_HEADER = "# Set, jar and SHA-256 of each jar; made from simulators/services/install/jars.toml by: make lock\n"

SPARK = "spark"
"""Spark's connector to Kafka, and Delta; pyspark has all others."""
S3A = "s3a"
"""Spark's connector to S3."""
ICEBERG = "iceberg"
"""Iceberg's runtime for Spark, in one jar."""
_OF_LINES = {"4.2": "", "4.1": "_4_1"}
"""What the sets of a line of Spark have behind their name."""


class JarError(Exception):
    """A jar cannot be downloaded, or is not the pinned one; the message contains what to do."""


@dataclass(frozen=True, slots=True, order=True)
class Coordinates:
    """The coordinates of a jar: group, artifact and version, and a classifier where there are several."""

    group: str
    artifact: str
    version: str
    classifier: str = ""

    def __str__(self) -> str:
        return ":".join(filter(None, (self.group, self.artifact, self.version, self.classifier)))

    @property
    def file_name(self) -> str:
        return "-".join(filter(None, (self.artifact, self.version, self.classifier))) + ".jar"


@dataclass(frozen=True, slots=True, order=True)
class Jar:
    """A jar and the SHA-256 that its bytes must have."""

    coordinates: Coordinates
    sha256: str


def parse_coordinates(text: str) -> Coordinates:
    """Parse `group:artifact:version` or `group:artifact:version:classifier`."""
    parts = text.split(":")
    if len(parts) not in {3, 4} or not all(parts):
        raise JarError(f"{text!r} does not name a jar; expected group:artifact:version")
    return Coordinates(*parts)


def read_lock(lock_file: Path = LOCK_FILE) -> dict[str, tuple[Jar, ...]]:
    """Return the pinned jars of each set."""
    sets: dict[str, tuple[Jar, ...]] = {}
    for line in lock_file.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        of, coordinates, sha256 = line.split()
        sets[of] = (*sets.get(of, ()), Jar(parse_coordinates(coordinates), sha256))
    return sets


def name_for(of: str, home: Path) -> str:
    """Return the name of SPARK or S3A for the Spark in a folder; raise JarError where it is of no supported line."""
    versions = [file.stem.rpartition("-")[2] for file in (home / "jars").glob("spark-core_*.jar")]
    line = ".".join(versions[0].split(".")[:2]) if versions else "unknown"
    if line not in _OF_LINES:
        supported = " or ".join(sorted(_OF_LINES))
        raise JarError(f"SPARK_HOME={home}: Spark {line} is not supported; use {supported}, or the installed pyspark")
    return of + _OF_LINES[line]


def write_lock(sets: Mapping[str, Iterable[Jar]], lock_file: Path = LOCK_FILE) -> None:
    """Write the pinned jars of each set."""
    lines = [f"{of} {jar.coordinates} {jar.sha256}\n" for of, jars in sets.items() for jar in sorted(jars)]
    lock_file.write_text(_HEADER + "".join(lines))


def sha256_of(file: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hex."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
