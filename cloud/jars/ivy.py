"""Download of jars by Apache Ivy, which pyspark includes; the user's own Ivy settings apply."""

import os
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

from cloud.jars import java
from cloud.jars.coordinates import Coordinates, JarError, parse_coordinates

# Ivy's types for jars; not those for tests, sources and documentation.
_JAR_TYPES = ("jar", "bundle", "maven-plugin", "orbit")
_RETRIEVED = "[organisation]:[artifact]:[revision](:[classifier]).[ext]"
_LOG_TAIL_LINES = 30


def pyspark_folder() -> Path:
    """Return the folder of the installed pyspark, without importing it."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise JarError("pyspark is not installed in this environment; install Oncegate with its extra `cloud`")
    return Path(spec.origin).parent


def fetch(
    wanted: Iterable[Coordinates],
    folder: Path,
    *,
    on_jar: Callable[[], None],
    overrides: Iterable[Coordinates] | None = None,
) -> dict[Coordinates, Path]:
    """Download the jars into the folder and call `on_jar` for each; with `overrides`, their dependencies too."""
    folder.mkdir(parents=True, exist_ok=True)
    description = folder / "ivy.xml"
    description.write_text(_describe(wanted, overrides))
    _run(_command(description, folder), folder / "ivy.log", on_jar)
    return {parse_coordinates(file.stem): file for file in (folder / "jars").glob("*.jar")}


def settings(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the user's Ivy settings: $ONCEGATE_IVY_SETTINGS, or else ~/.ivy2/ivysettings.xml; None without any."""
    if chosen := environment.get("ONCEGATE_IVY_SETTINGS"):
        return Path(chosen)
    usual = Path.home() / ".ivy2" / "ivysettings.xml"
    return usual if os.path.isfile(usual) else None  # noqa: PTH113  # is_file() raises where a service sees no home


def _describe(wanted: Iterable[Coordinates], overrides: Iterable[Coordinates] | None) -> str:
    transitive = "true" if overrides is not None else "false"
    lines = ['<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">']
    lines.append('<info organisation="oncegate" module="services"/>')
    lines.append('<configurations><conf name="default"/></configurations><dependencies>')
    classifiers: dict[Coordinates, list[str]] = {}
    for jar in wanted:
        classifiers.setdefault(replace(jar, classifier=""), []).append(jar.classifier)
    lines += [
        f"<dependency org={quoteattr(jar.group)} name={quoteattr(jar.artifact)} rev={quoteattr(jar.version)}"
        f' transitive="{transitive}" conf="default->default">{_artifacts(jar.artifact, found)}</dependency>'
        for jar, found in classifiers.items()
    ]
    lines += [
        f"<override org={quoteattr(jar.group)} module={quoteattr(jar.artifact)} rev={quoteattr(jar.version)}"
        ' matcher="exact"/>'
        for jar in overrides or ()
    ]
    return "\n".join([*lines, "</dependencies></ivy-module>\n"])


def _artifacts(name: str, classifiers: Sequence[str]) -> str:
    """Return a module's artifacts, one for each classifier; empty where it has no classifier."""
    if not any(classifiers):
        return ""
    of_each = (f" m:classifier={quoteattr(one)}" if one else "" for one in classifiers)
    return "".join(f'<artifact name={quoteattr(name)} type="jar"{one}/>' for one in of_each)


def _command(description: Path, folder: Path) -> list[str]:
    ivy_jar = next(iter((pyspark_folder() / "jars").glob("ivy-*.jar")), None)
    if ivy_jar is None:
        raise JarError(f"no Ivy jar in {pyspark_folder() / 'jars'}")
    command = [str(java.require()), "-jar", str(ivy_jar)]
    if (own_settings := settings()) is not None:
        command += ["-settings", str(own_settings)]
    # A separate cache, removed with the folder, so that a bad download is never reused.
    command += ["-cache", str(folder / "ivy-cache"), "-ivy", str(description)]
    return [*command, "-retrieve", str(folder / "jars" / _RETRIEVED), "-types", *_JAR_TYPES]


def _run(command: list[str], log_file: Path, on_jar: Callable[[], None]) -> None:
    lines = []
    with (
        log_file.open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as ivy,
    ):
        for line in ivy.stdout or ():
            log.write(line)
            lines.append(line)
            if "[SUCCESSFUL" in line:
                on_jar()
    if ivy.returncode != 0:
        tail = "".join(lines[-_LOG_TAIL_LINES:])
        raise JarError(f"fetching jars by Ivy: status {ivy.returncode}; the end of its output:\n{tail}")
