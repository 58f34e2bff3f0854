"""The configuration file: TOML and environment overrides in, checked settings out."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

from agent.settings import (
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
    """The configuration cannot be used; the message names place, key, what was expected and what was found."""


def load(path: Path, environment: Mapping[str, str] = os.environ) -> Settings:
    """Read a configuration file and the environment's overrides (ONCEGATE_<SECTION>__<KEY>)."""
    try:
        text = path.read_text()
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path}: not TOML: {error}") from error
    return parse(document, str(path), environment)


def parse(document: Mapping[str, object], source: str, environment: Mapping[str, str]) -> Settings:
    """Check a configuration document; `source` names it in errors."""
    tables = _tables(document)
    for section in tables:
        if section not in SECTIONS:
            raise ConfigurationError(f"{source}: unknown section [{section}]{_nearest(section, SECTIONS)}")
    overrides = _overrides(environment)
    parts = {
        section.replace(".", "_"): _section(section, kind, tables.get(section, {}), overrides.get(section, {}), source)
        for section, kind in SECTIONS.items()
    }
    return Settings(**parts)


def key_of(option: Field[Any]) -> str:
    """Give the key under which a setting stands in the file."""
    return option.metadata["key"] or option.name


def _tables(document: Mapping[str, object]) -> dict[str, object]:
    """Give each section's table under its whole name, such as `coap.oscore`."""
    tables = dict(document)
    for section in SECTIONS:
        outer, dot, inner = section.partition(".")
        table = tables.get(outer)
        if dot and isinstance(table, dict) and inner in table:
            tables[section] = table[inner]
            tables[outer] = {key: value for key, value in table.items() if key != inner}
    return tables


def _section(section: str, kind: type[Any], table: object, overrides: Mapping[str, str], source: str) -> Any:
    if not isinstance(table, dict):
        raise ConfigurationError(f"{source}: [{section}]: expected a table")
    options = {key_of(option): option for option in fields(kind)}
    values: dict[str, object] = {}
    for origin, given in ((source, table), ("environment", overrides)):
        for key, value in given.items():
            if key not in options:
                raise ConfigurationError(f"{origin}: [{section}] {key}: unknown key{_nearest(key, options)}")
            values[options[key].name] = _read(options[key], value, f"{origin}: [{section}] {key}")
    for key, option in options.items():
        if option.name not in values and option.default is MISSING and option.default_factory is MISSING:
            raise ConfigurationError(f"{source}: [{section}] {key}: missing; {option.metadata['help']}")
    try:
        return kind(**values)
    except ValueError as error:
        raise ConfigurationError(f"{source}: [{section}] {error}") from error


def _read(option: Field[Any], value: object, place: str) -> object:
    try:
        return option.metadata["read"](value)
    except ValueError as error:
        raise ConfigurationError(f"{place}: {error}; found {value!r}") from error


def _overrides(environment: Mapping[str, str]) -> dict[str, dict[str, str]]:
    overrides: dict[str, dict[str, str]] = {}
    for name, value in environment.items():
        path, separator, key = name.removeprefix(OVERRIDE_PREFIX).rpartition(OVERRIDE_SEPARATOR)
        if not name.startswith(OVERRIDE_PREFIX) or not separator:
            continue
        section = path.replace(OVERRIDE_SEPARATOR, ".").lower()
        if section not in SECTIONS:
            raise ConfigurationError(f"environment: {name}: unknown section{_nearest(section, SECTIONS)}")
        overrides.setdefault(section, {})[key.lower()] = value
    return overrides


def _nearest(word: str, known: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}"
