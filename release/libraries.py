"""Adds to a bill of materials (CycloneDX) what Python's metadata does not name: `python libraries.py BILL [JARS_LOCK]`.

It runs in the described environment. Libraries inside wheels are those that a wheel's own bills name (PEP 770), and
those whose versions its shared objects contain. Jars are those of PySpark, with what they contain, and of `jars.lock`.
"""

import json
import re
import sys
import zipfile
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

LOCKED_SET = "spark"
"""The jars of `jars.lock` that the pinned PySpark needs."""
_TEXTS = {
    "openssl": rb"OpenSSL (\d+\.\d+\.\d+[\w.+-]*) +\d",
    "zlib": rb"(?:in|de)flate (\d[\d.]*\d) Copyright",
    "expat": rb"expat_(\d+\.\d+\.\d+)",
    "krb5": rb"krb5-(\d+\.\d+(?:\.\d+)?)-final",
}
"""What shared objects contain of the libraries that are linked into them."""
_BARE = {
    "confluent-kafka": {"zstd": rb"\0(1\.5\.\d+)\0", "lz4": rb"\0(1\.(?:9|10)\.\d+)\0", "curl": rb"\0(8\.\d+\.\d+)\0"},
    "psycopg-binary": {"openldap": rb"\0(2\.6\.\d+)\0"},
}
"""Versions without a name, in the objects of one distribution, whose library is named also where none is found."""
_ASKED: dict[str, tuple[str, Callable[[], str]]] = {
    "confluent-kafka": ("librdkafka", lambda: import_module("confluent_kafka").libversion()[0]),
    "psycopg-binary": ("libpq", lambda: ".".join(map(str, divmod(import_module("psycopg").pq.version(), 10_000)))),
}
"""Libraries that tell their versions themselves."""
_KEPT = ("type", "name", "group", "version", "purl", "hashes", "licenses")

Component = dict[str, Any]


def main() -> None:
    """Rewrite the bill with the additional components, each once, in order."""
    bill = Path(sys.argv[1])
    document = json.loads(bill.read_text())
    found = [one for each in distributions() for one in inside(each)]
    found += [one for lock in sys.argv[2:] for one in locked(Path(lock).read_text())]
    present = {json.dumps(one, sort_keys=True) for one in found}
    document["components"] += [json.loads(text) for text in sorted(present)]
    bill.write_text(json.dumps(document, indent=2) + "\n")


def inside(distribution: Distribution) -> Iterator[Component]:
    """Yield what one installed distribution contains."""
    name = re.sub(r"[-_.]+", "-", distribution.name).lower()
    files = [Path(str(distribution.locate_file(file))) for file in distribution.files or ()]
    if name in _ASKED:
        library, ask = _ASKED[name]
        yield _component(library, ask(), name)
    objects = b"".join(file.read_bytes() for file in files if ".so" in file.suffixes)
    bare = _BARE.get(name, {})
    for library, pattern in (_TEXTS | bare).items():
        versions = {version.decode() for version in re.findall(pattern, objects)}
        yield from (_component(library, version, name) for version in versions or ({""} if library in bare else ()))
    for file in files:
        if "sboms" in file.parts and file.suffix == ".json":
            yield from (_kept(one, name) for one in json.loads(file.read_text()).get("components", ()))
        elif file.suffix == ".jar" and "jars" in file.parts:
            yield from _jar(file, name)


def locked(lock: str) -> Iterator[Component]:
    """Yield the jars of the lock file."""
    for line in lock.splitlines():
        if line.startswith(f"{LOCKED_SET} "):
            _, coordinates, digest = line.split()
            group, artifact, version = coordinates.split(":")
            yield {**_maven(group, artifact, version), "hashes": [{"alg": "SHA-256", "content": digest}]}


def _jar(file: Path, holder: str) -> Iterator[Component]:
    """Yield what a jar states that it contains; itself by its file name where it does not state that."""
    with zipfile.ZipFile(file) as jar:
        stated = [one for one in jar.namelist() if one.endswith("/pom.properties")]
        texts = [jar.read(one).decode(errors="replace") for one in stated]
    is_stated = False
    for text in texts:
        said = dict(line.strip().split("=", 1) for line in text.splitlines() if "=" in line)
        is_stated |= file.stem.startswith(f"{said['artifactId']}-{said['version']}")
        yield _inside(_maven(said["groupId"], said["artifactId"], said["version"]), holder)
    if not is_stated:
        name, _, version = re.sub(r"-(?=\d)", " ", file.stem, count=1).partition(" ")
        yield _component(name, version, holder)


def _maven(group: str, artifact: str, version: str) -> Component:
    purl = f"pkg:maven/{group}/{artifact}@{version}"
    return {"type": "library", "group": group, "name": artifact, "version": version, "purl": purl}


def _component(name: str, version: str, holder: str) -> Component:
    stated = {"version": version, "purl": f"pkg:generic/{name}@{version}"} if version else {}
    return _inside({"type": "library", "name": name, **stated}, holder)


def _kept(component: Component, holder: str) -> Component:
    return _inside({name: component[name] for name in _KEPT if name in component}, holder)


def _inside(component: Component, holder: str) -> Component:
    return {**component, "properties": [{"name": "oncegate:inside", "value": holder}]}


if __name__ == "__main__":
    main()
