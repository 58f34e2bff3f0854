"""Read the properties of a Kafka client from a file of lines NAME=VALUE, as Kafka's own tools write them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from contract import files


class PropertiesError(Exception):
    """The file cannot be read, or is not a properties file; the message never holds a value."""


def parse(lines: Iterable[str], source: Path) -> dict[str, str]:
    """Return the properties; empty lines and those that begin with # are ignored."""
    properties: dict[str, str] = {}
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line.startswith("#"):
            continue
        name, sign, value = line.partition("=")
        if not sign or not name.strip():
            raise PropertiesError(f"{source}:{number}: expected name=value")  # never the line, which may be a secret
        properties[name.strip()] = value.strip()
    return properties


def read_private(file: Path) -> dict[str, str]:
    """Return the properties of a file that only its owner can read or write; raise PropertiesError for any other."""
    try:
        text = files.read_private(file)
    except files.PrivateFileError as error:
        raise PropertiesError(f"{file}: {error}") from error
    return parse(text.split("\n"), file)
