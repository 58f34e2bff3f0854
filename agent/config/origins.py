"""The effective configuration: each setting's value and its origin."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import Field, asdict, dataclass, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from agent.config import load, readers
from agent.config.load import Source, key_of, override_of
from agent.config.settings import Settings

DEFAULT = "default"
HIDDEN = "(hidden)"
_HASH_DIGITS = 16
_SECRET = re.compile(r"password|secret|token|jaas|passphrase|\.pem$|\.key$|sasl\.oauthbearer\.config", re.IGNORECASE)
"""Names of librdkafka's properties whose values are secrets."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting with its effective value."""

    section: str
    key: str
    value: object
    """In JSON's types; secrets are hidden."""
    origin: str
    """`default`, `FILE:LINE`, or the environment variable's name."""


def is_secret(name: str) -> bool:
    """Whether the value of a property of librdkafka is a secret."""
    return _SECRET.search(name) is not None


def read(path: Path, environment: Mapping[str, str]) -> tuple[Settings, list[Setting]]:
    """Read a configuration with the origins of its values; raise ConfigurationError."""
    document, source = load.read(path)
    settings = load.parse(document, source, environment)
    return settings, list(_settings(settings, document, source, environment))


def settings_hash(settings: Settings) -> str:
    """Return a hash of the effective settings, by which the views of a fleet show whose settings differ.

    It leaves out the gateway's id, which differs on each, and contents: of secrets, and of all files.
    """
    plain = {
        f"{section}.{key_of(option)}": _shown(option, getattr(part, option.name))
        for section, part in load.parts_of(settings).items()
        for option in fields(part)
    }
    del plain["gateway.id"]
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:_HASH_DIGITS]


def _settings(
    settings: Settings, document: Mapping[str, Any], source: Source, environment: Mapping[str, str]
) -> Iterator[Setting]:
    tables, parts = load.sections_of(document), load.parts_of(settings)
    given, _ = load.overrides(environment, parts)
    for section, part in parts.items():
        for option in fields(part):
            key = key_of(option)
            if key in given.get(section, {}):
                origin = override_of(section, key)
            elif key in tables.get(section, {}):
                line = source.line(section, key)
                origin = source.name if line is None else f"{source.name}:{line}"
            else:
                origin = DEFAULT
            yield Setting(section, key, _shown(option, getattr(part, option.name)), origin)


def _shown(option: Field[Any], value: object) -> object:
    """Return a value in JSON's types; secrets are hidden."""
    if option.metadata["read"] is readers.secret and value is not None:
        return HIDDEN
    if option.name == "properties" and isinstance(value, Mapping):
        value = {key: HIDDEN if is_secret(key) else item for key, item in value.items()}
    return json.loads(json.dumps(value, default=_plain))


def _plain(value: object) -> object:
    """Return a dataclass, enum, set or mapping in simpler types, any other value as text."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    return value.table if hasattr(value, "table") else str(value)  # a mapping, as it was written
