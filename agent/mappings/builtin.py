"""The built-in mappings, in builtin.toml beside this file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from agent.mappings.mapping import EventMapping, read

_FILE = "builtin.toml"


@cache
def mappings() -> Mapping[str, EventMapping]:
    """Return the built-in mappings by their names."""
    return {mapping.name: mapping for mapping in map(read, tomllib.loads(_text())["mappings"])}


def written(name: str) -> str:
    """Return a built-in mapping as it stands in the file, with its comment."""
    return next(part for part in _text().split("\n\n") if f'name = "{name}"' in part).strip() + "\n"


def topics(name: str) -> str:
    """Return the line about a mapping's topics."""
    return written(name).partition("\n")[0].removeprefix("# ")


def _text() -> str:
    return files("agent.mappings").joinpath(_FILE).read_text()
