"""Keep the pinned jars in the cache: fetched once, checked, and there at once ever after."""

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
"""Spark's connector to S3, beside what pyspark ships."""
S3 = "s3"
"""A server of S3."""
STREAMS = "streams"
"""Kafka Streams, which only a benchmark needs."""


class Fetch(Protocol):
    """Bring jars, and nothing that they need, into a folder."""

    def __call__(
        self, wanted: Sequence[Coordinates], folder: Path, *, on_jar: Callable[[], None]
    ) -> Mapping[Coordinates, Path]:
        """Return where each jar now lies; what could not be fetched is missing or an error."""
        ...


def paths(of: str) -> tuple[Path, ...]:
    """Return the jars of a set; what the cache lacks is fetched first."""
    return ensure(read_lock()[of], cache.folder() / "jars", of)


def ensure(jars: Sequence[Jar], folder: Path, label: str, fetch: Fetch = ivy.fetch) -> tuple[Path, ...]:
    """Return where the jars lie in the folder, fetching and checking those that it lacks."""
    missing = [jar for jar in jars if not place(jar, folder).exists()]
    if missing:
        folder.mkdir(parents=True, exist_ok=True)
        # Each run fetches into a folder of its own: two at once may both fetch, and neither disturbs the other.
        with tempfile.TemporaryDirectory(dir=folder, prefix="fetching-") as temporary:
            fetched = _fetch_visibly(missing, Path(temporary), label, fetch)
            for jar in missing:
                _admit(jar, fetched.get(jar.coordinates), place(jar, folder))
    return tuple(place(jar, folder) for jar in jars)


def place(jar: Jar, folder: Path) -> Path:
    """Return where a jar belongs: its checksum is in the path, so that other bytes are another file."""
    return folder / jar.sha256[:16] / jar.coordinates.file_name


def _fetch_visibly(missing: Sequence[Jar], folder: Path, label: str, fetch: Fetch) -> Mapping[Coordinates, Path]:
    columns = (TextColumn("jars: fetching {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns) as progress:
        task = progress.add_task(label, total=len(missing))
        return fetch([jar.coordinates for jar in missing], folder, on_jar=lambda: progress.advance(task))


def _admit(jar: Jar, fetched: Path | None, target: Path) -> None:
    """Move a fetched jar to its place when its bytes are the right ones; else remove and refuse it."""
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
    """Bring a file, or a folder's entries, to disk: after a power cut a name in the cache means whole bytes."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
