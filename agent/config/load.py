"""Loads the configuration file and the environment's overrides into checked settings."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from agent.config import files, readers, toml_lines
from agent.config.settings import (
    CoapSettings,
    DevicesSettings,
    GatewaySettings,
    HttpSettings,
    IdentitySettings,
    KafkaSettings,
    MqttSettings,
    OscoreSettings,
    ReceiptSettings,
    Settings,
    StoreSettings,
)
from agent.config.suggestion import suggestion

DEFAULT_PATH = Path("/etc/oncegate/oncegate.toml")
PATH_VARIABLE = "ONCEGATE_CONFIG"
OVERRIDE_PREFIX = "ONCEGATE_"
OVERRIDE_SEPARATOR = "__"

SECTIONS: Mapping[str, type[Any]] = {
    "gateway": GatewaySettings,
    "coap": CoapSettings,
    "coap.oscore": OscoreSettings,
    "http": HttpSettings,
    "devices": DevicesSettings,
    "mqtt": MqttSettings,
    "identity": IdentitySettings,
    "store": StoreSettings,
    "kafka": KafkaSettings,
    "receipts": ReceiptSettings,
}


class ConfigurationError(Exception):
    """The configuration is invalid: do not retry; the message has place, key, expected and actual value."""


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a configuration: its name, and the lines of its keys."""

    name: str
    lines: Mapping[toml_lines.Path, int] = field(default_factory=dict)

    def place(self, *path: str) -> str:
        """Return the place of a section or its key, as `FILE:LINE`."""
        line = toml_lines.line_at(self.lines, (*path[0].split("."), *path[1:]))
        return self.name if line is None else f"{self.name}:{line}"


def load(path: Path, environment: Mapping[str, str] = os.environ) -> Settings:
    """Read a configuration file and the environment's overrides (ONCEGATE_<SECTION>__<KEY>)."""
    document, source = read(path)
    return parse(document, source, environment)


def read(path: Path) -> tuple[Mapping[str, object], Source]:
    """Read a file as TOML."""
    try:
        text = files.read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ConfigurationError(f"{path}: cannot be read: {reason}") from error
    try:
        document = files.parse_toml(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path}: not TOML: {error}") from error
    return document, Source(str(path), toml_lines.lines_of(text))


def parse(document: Mapping[str, object], source: Source, environment: Mapping[str, str]) -> Settings:
    """Check a configuration document; `source` names places in errors."""
    tables = sections_of(document)
    for section in tables:
        if section not in SECTIONS:
            raise ConfigurationError(
                f"{source.place(section)}: unknown section [{section}]{suggestion(section, SECTIONS)}"
            )
    given = overrides(environment)
    parts = {
        section.replace(".", "_"): _section(section, kind, tables.get(section, {}), given.get(section, {}), source)
        for section, kind in SECTIONS.items()
    }
    return Settings(**parts)


def key_of(option: Field[Any]) -> str:
    """Return a setting's key in the file."""
    return option.metadata["key"] or option.name


def sections_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return each section's table by its full name, such as `coap.oscore`."""
    tables = dict(document)
    for section in SECTIONS:
        outer, dot, inner = section.partition(".")
        table = tables.get(outer)
        if dot and isinstance(table, dict) and inner in table:
            tables[section] = table[inner]
            tables[outer] = {key: value for key, value in table.items() if key != inner}
    return tables


def overrides(environment: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the environment's overrides, by section and key."""
    found: dict[str, dict[str, str]] = {}
    for name, value in environment.items():
        path, separator, key = name.removeprefix(OVERRIDE_PREFIX).rpartition(OVERRIDE_SEPARATOR)
        if not name.startswith(OVERRIDE_PREFIX) or not separator:
            continue
        section = path.replace(OVERRIDE_SEPARATOR, ".").lower()
        if section not in SECTIONS:
            raise ConfigurationError(f"environment: {name}: unknown section{suggestion(section, SECTIONS)}")
        found.setdefault(section, {})[key.lower()] = value
    return found


def override_of(section: str, key: str) -> str:
    """Return the name of the environment variable that overrides a key."""
    return f"{OVERRIDE_PREFIX}{section.replace('.', OVERRIDE_SEPARATOR)}{OVERRIDE_SEPARATOR}{key}".upper()


def _section(section: str, kind: type[Any], table: object, given: Mapping[str, str], source: Source) -> Any:
    if not isinstance(table, dict):
        raise ConfigurationError(f"{source.place(section)}: [{section}]: expected a table")
    options = {key_of(option): option for option in fields(kind)}
    values: dict[str, object] = {}
    for origin, entries in ((source, table), (Source("environment"), given)):
        for key, value in entries.items():
            place = f"{origin.place(section, key)}: [{section}] {key}"
            if key not in options:
                raise ConfigurationError(f"{place}: unknown key{suggestion(key, options)}")
            values[options[key].name] = _read(options[key], value, place)
    place = source.place(section)
    for key, option in options.items():
        if option.name not in values and option.default is MISSING and option.default_factory is MISSING:
            raise ConfigurationError(f"{place}: [{section}] {key}: missing; {option.metadata['help']}")
    try:
        return kind(**values)
    except ValueError as error:
        raise ConfigurationError(f"{place}: [{section}] {error}") from error


def _read(option: Field[Any], value: object, place: str) -> object:
    try:
        return option.metadata["read"](value)
    except ValueError as error:
        found = "" if option.metadata["read"] is readers.properties else f"; found {value!r}"  # some are secret
        raise ConfigurationError(f"{place}: {error}{found}") from error
