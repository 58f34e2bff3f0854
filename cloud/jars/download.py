"""The cache of downloads, and the pinned jars in it: downloaded once, verified, then reused."""

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cloud.jars import ivy
from cloud.jars.coordinates import Coordinates, Jar, JarError, sha256_of

VARIABLE = "ONCEGATE_CACHE"


def cache_folder() -> Path:
    """Return the cache folder: $ONCEGATE_CACHE, or else ~/.cache/oncegate."""
    chosen = os.environ.get(VARIABLE)
    return Path(chosen).expanduser().absolute() if chosen else Path.home() / ".cache" / "oncegate"


def missing_from(jars: Sequence[Jar], folder: Path) -> list[Jar]:
    """Return the jars that the folder lacks."""
    return [jar for jar in jars if not place(jar, folder).exists()]


def ensure(
    jars: Sequence[Jar],
    folder: Path | None = None,
    *,
    fetch: Callable[..., Mapping[Coordinates, Path]] = ivy.fetch,
    on_jar: Callable[[], None] = lambda: None,
) -> tuple[Path, ...]:
    """Return the files of the jars in the folder, after downloading and verifying those that it lacks."""
    folder = folder or folder_of_jars()
    if missing := missing_from(jars, folder):
        folder.mkdir(parents=True, exist_ok=True)
        # Each run downloads into a folder of its own, so that concurrent runs do not disturb one another.
        with tempfile.TemporaryDirectory(dir=folder, prefix="fetching-") as temporary:
            fetched = fetch([jar.coordinates for jar in missing], Path(temporary), on_jar=on_jar)
            for jar in missing:
                _admit(jar, fetched.get(jar.coordinates), place(jar, folder))
    return tuple(place(jar, folder) for jar in jars)


def folder_of_jars() -> Path:
    """Return the folder of the jars in the cache."""
    return cache_folder() / "jars"


def place(jar: Jar, folder: Path) -> Path:
    """Return the path of a jar; it contains the checksum, so that other content is another file."""
    return folder / jar.sha256[:16] / jar.coordinates.file_name


def _admit(jar: Jar, fetched: Path | None, target: Path) -> None:
    """Move a downloaded jar into place where its checksum is right; else remove it and raise JarError."""
    if fetched is None:
        raise JarError(f"{jar.coordinates}: was not fetched")
    found = sha256_of(fetched)
    if found != jar.sha256:
        fetched.unlink()
        raise JarError(f"{jar.coordinates}: refused and removed: its SHA-256 is {found}, pinned is {jar.sha256}")
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
