"""Pin the jars: `python -m simulators.services.install.lock` resolves jars.toml and writes both files jars.lock."""

import re
import tempfile
import tomllib
from pathlib import Path
from typing import TypedDict

from cloud.jars import coordinates, ivy
from cloud.jars.coordinates import Coordinates, Jar, parse_coordinates, sha256_of, write_lock
from simulators.services.install import jars

ROOTS_FILE = Path(__file__).with_name("jars.toml")
_VERSION = re.compile(r"-\d.*$")


class Roots(TypedDict, total=False):
    """One set in jars.toml."""

    roots: list[str]
    """Jars with their dependencies."""
    alone: list[str]
    """Jars without their dependencies."""
    overrides: list[str]
    only: list[str]
    """The groups that are kept; all, where absent."""
    without: list[str]
    """Artifacts that are left out."""


def main() -> None:
    """Resolve each set, leave out the jars of pyspark, and write the lock files."""
    required: dict[str, Roots] = tomllib.loads(ROOTS_FILE.read_text())
    shipped = {_VERSION.sub("", file.name) for file in (ivy.pyspark_folder() / "jars").glob("*.jar")}
    sets = {of: _resolve(roots) for of, roots in required.items()}
    of_job = [of for of in sets if of.startswith((jars.SPARK, jars.S3A, jars.ICEBERG))]
    for of in of_job:
        sets[of] = [jar for jar in sets[of] if _VERSION.sub("", jar.coordinates.file_name) not in shipped]
    for of, pinned in sets.items():
        print(f"lock: {of}: {len(pinned)} jars")
    write_lock({of: sets.pop(of) for of in of_job}, coordinates.LOCK_FILE)
    write_lock(sets, jars.LOCK_FILE)


def _resolve(given: Roots) -> list[Jar]:
    pinned = _fetch(given.get("roots", []), _parse(given.get("overrides", [])))
    kept = given.get("only", {jar.coordinates.group for jar in pinned})
    pinned = [jar for jar in pinned if jar.coordinates.artifact not in given.get("without", [])]
    return [*(jar for jar in pinned if jar.coordinates.group in kept), *_fetch(given.get("alone", []), None)]


def _fetch(names: list[str], overrides: list[Coordinates] | None) -> list[Jar]:
    """Return jars with their checksums; with `overrides`, their dependencies too."""
    if not names:
        return []
    with tempfile.TemporaryDirectory() as folder:
        found = ivy.fetch(_parse(names), Path(folder), on_jar=lambda: None, overrides=overrides)
        return [Jar(jar, sha256_of(file)) for jar, file in found.items()]


def _parse(names: list[str]) -> list[Coordinates]:
    return [parse_coordinates(name) for name in names]


if __name__ == "__main__":
    main()
