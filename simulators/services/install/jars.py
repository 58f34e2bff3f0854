"""The pinned jars in the cache: downloaded once, verified, then reused."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from simulators.services.error import ServiceError
from simulators.services.install import cache, ivy
from simulators.services.install.jar import Coordinates, Jar, read_lock, sha256_of

BROKER = "broker"
SPARK = "spark"
S3A = "s3a"
"""Spark's connector to S3, in addition to the jars of pyspark."""
S3 = "s3"
"""An S3 server."""
STREAMS = "streams"
"""Kafka Streams, which only a benchmark needs."""
TLC = "tlc"
"""The model checker, which only models/ needs."""


class Fetch(Protocol):
    """Downloads jars, without their dependencies, into a folder."""

    def __call__(
        self, wanted: Sequence[Coordinates], folder: Path, *, on_jar: Callable[[], None]
    ) -> Mapping[Coordinates, Path]:
        """Return the file of each jar; one that could not be downloaded is missing, or an error is raised."""
        ...


def paths(of: str) -> tuple[Path, ...]:
    """Return the jars of a set, after downloading those that the cache lacks."""
    return ensure(read_lock()[of], cache.folder() / "jars", of)


def ensure(jars: Sequence[Jar], folder: Path, label: str, fetch: Fetch = ivy.fetch) -> tuple[Path, ...]:
    """Return the files of the jars in the folder, after downloading and verifying those that it lacks."""
    missing = [jar for jar in jars if not place(jar, folder).exists()]
    if missing:
        folder.mkdir(parents=True, exist_ok=True)
        # Each run downloads into a folder of its own, so that concurrent runs do not disturb one another.
        with tempfile.TemporaryDirectory(dir=folder, prefix="fetching-") as temporary:
            fetched = _fetch_visibly(missing, Path(temporary), label, fetch)
            for jar in missing:
                _admit(jar, fetched.get(jar.coordinates), place(jar, folder))
    return tuple(place(jar, folder) for jar in jars)


def place(jar: Jar, folder: Path) -> Path:
    """Return the path of a jar; it contains the checksum, so that other content is another file."""
    return folder / jar.sha256[:16] / jar.coordinates.file_name


def _fetch_visibly(missing: Sequence[Jar], folder: Path, label: str, fetch: Fetch) -> Mapping[Coordinates, Path]:
    columns = (TextColumn("jars: fetching {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns) as progress:
        task = progress.add_task(label, total=len(missing))
        return fetch([jar.coordinates for jar in missing], folder, on_jar=lambda: progress.advance(task))


def _admit(jar: Jar, fetched: Path | None, target: Path) -> None:
    """Move a downloaded jar into place where its checksum is right; else remove it and raise ServiceError."""
    if fetched is None:
        raise ServiceError(f"{jar.coordinates}: was not fetched")
    found = sha256_of(fetched)
    if found != jar.sha256:
        fetched.unlink()
        raise ServiceError(f"{jar.coordinates}: refused and removed: its SHA-256 is {found}, pinned is {jar.sha256}")
    _flush(fetched)
    target.parent.mkdir(exist_ok=True)
    fetched.replace(target)
    _flush(target.parent)


def _flush(file: Path) -> None:
    """Flush a file, or a folder's entries, to disk, so that after a power cut every cached file is complete."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
