"""The mappings that a configuration may name: the built-in ones, its own, and those of a folder."""

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

from agent.mappings.mapping import EventMapping, MappingError, read


@cache
def builtin() -> Mapping[str, EventMapping]:
    """Return the built-in mappings, in builtin.toml beside this file, by their names."""
    return {mapping.name: mapping for mapping in map(read, tomllib.loads(_text())["mappings"])}


def written(name: str) -> str:
    """Return a built-in mapping as it stands in the file, with its comment."""
    return next(part for part in _text().split("\n\n") if f'name = "{name}"' in part).strip() + "\n"


def topics(name: str) -> str:
    """Return the line about a mapping's topics."""
    return written(name).partition("\n")[0].removeprefix("# ")


def _text() -> str:
    return files("agent.mappings").joinpath("builtin.toml").read_text()


def catalog(own: Sequence[EventMapping], folder: Path | None) -> Mapping[str, EventMapping]:
    """Return all mappings by their names; raise MappingError where a file is wrong or a name occurs twice."""
    known = dict(builtin())
    for mapping in configured(own, folder):
        if mapping.name in known:
            raise MappingError(f"{mapping.name}: expected another name, there is such a mapping")
        known[mapping.name] = mapping
    return known


def configured(own: Sequence[EventMapping], folder: Path | None) -> Sequence[EventMapping]:
    """Return the mappings that are not built in; raise MappingError where a file is wrong."""
    return (*own, *(() if folder is None else _read_folder(folder)))


def _read_folder(folder: Path) -> Sequence[EventMapping]:
    """Return the mappings of all files `*.toml`, each with tables [[mappings]]."""
    try:
        texts = {file: file.read_text(encoding="utf-8") for file in sorted(folder.iterdir()) if file.suffix == ".toml"}
    except (OSError, UnicodeDecodeError) as error:
        raise MappingError(f"{folder}: cannot be read: {error}") from None
    found: list[EventMapping] = []
    for file, text in texts.items():
        try:
            document = tomllib.loads(text)
            if set(document) != {"mappings"} or not isinstance(document["mappings"], list):
                raise MappingError("expected tables [[mappings]] and nothing else")
            found += map(read, document["mappings"])
        except RecursionError:
            raise MappingError(f"{file}: nested too deeply") from None
        except ValueError as error:  # of a mapping or of TOML, numbers that are too long included
            raise MappingError(f"{file}: {error}") from None
    return found
