"""Loads the configuration file and the environment's overrides into checked settings."""

import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

from agent.config import files, readers, toml_lines, ways
from agent.config.mistakes import ConfigurationError, Mistake, SettingErrors, suggestion, texts
from agent.config.settings import GatewaySettings, KafkaSettings, Settings
from agent.config.subscriptions import resolve
from agent.delivery import Media

DEFAULT_PATH = Path("/etc/oncegate/oncegate.toml")
PATH_VARIABLE = "ONCEGATE_CONFIG"
OVERRIDE_PREFIX = "ONCEGATE_"
OVERRIDE_SEPARATOR = "__"
ENVIRONMENT = "environment"
TOP = ""
"""The keys above all sections, as a section."""
_TOML_PLACE = re.compile(r"\(at line (\d+), column \d+\)")

SECTIONS: Mapping[str, type[Any]] = {
    TOP if name == "mappings" else name.replace("_", "."): kind
    for name, kind in get_type_hints(Settings).items()
    if name != "sources"
}
"""The settings of each section, in the order of the file."""


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a configuration: its name, and the lines of its keys."""

    name: str
    lines: Mapping[toml_lines.Path, int] = field(default_factory=dict)

    def line(self, *path: str) -> int | None:
        """Return the line of a section or its key, None where it is unknown."""
        parts = tuple(filter(None, (*path[0].split("."), *path[1:])))
        return toml_lines.line_at(self.lines, parts)

    def mistake(self, section: str, key: str, message: str) -> Mistake:
        return Mistake(self.name, self.line(section, key), section, key, message)


def load(path: Path, environment: Mapping[str, str] = os.environ) -> Settings:
    """Read a configuration file and the environment's overrides (ONCEGATE_<SECTION>__<KEY>)."""
    document, source = read(path)
    return parse(document, source, environment)


def load_or_defaults(path: Path, *, required: bool = True) -> Settings:
    """Read a configuration file; return the defaults where there is none, or it is not `required` and has mistakes."""
    try:
        return load(path)
    except ConfigurationError:
        if required and path.exists():
            raise
        return Settings(GatewaySettings("none"), KafkaSettings(""))


def read(path: Path) -> tuple[Mapping[str, object], Source]:
    """Read a file as TOML; raise ConfigurationError."""
    try:
        text = files.read_text(path)
    except UnicodeDecodeError as error:
        raise ConfigurationError(Mistake(str(path), None, "", "", "cannot be read: not UTF-8 text")) from error
    except OSError as error:
        hint = "; run it with sudo" if isinstance(error, PermissionError) else ""
        reason = f"cannot be read: {error.strerror or error}{hint}"
        raise ConfigurationError(Mistake(str(path), None, "", "", reason)) from error
    try:
        document = files.parse_toml(text)
    except ValueError as error:
        raise ConfigurationError(_syntax_mistake(path, text, str(error))) from error
    return document, Source(str(path), toml_lines.lines_of(text))


def parse(document: Mapping[str, object], source: Source, environment: Mapping[str, str]) -> Settings:
    """Check a configuration document; raise ConfigurationError with all mistakes, in the order of their lines."""
    sections, mistakes = examine(document, source, environment)
    if mistakes:
        raise ConfigurationError(*mistakes)
    return settings_of(sections)


def settings_of(sections: Mapping[str, Any]) -> Settings:
    """Return all settings, given those of each section."""
    return Settings(
        **{attribute_of(name): part for name, part in sections.items() if name in SECTIONS},
        sources={name.removeprefix(ways.SECTION): part for name, part in sections.items() if name not in SECTIONS},
    )


def examine(
    document: Mapping[str, object], source: Source, environment: Mapping[str, str]
) -> tuple[dict[str, Any], list[Mistake]]:
    """Return the settings of the sections without a mistake, and all mistakes."""
    tables = sections_of(document)
    sections: dict[str, type[Any]] = dict(SECTIONS)
    mistakes = []
    for name in tables:
        if name.startswith(ways.SECTION):
            try:
                settings = ways.find(name.removeprefix(ways.SECTION)).settings
                assert settings is not None  # only those of the agent itself have none
                sections[name] = settings
            except ValueError as error:
                mistakes.append(source.mistake(name, "", str(error)))
        elif name not in SECTIONS:
            text = f"unknown section [{name}]{suggestion(name, SECTIONS)}"
            mistakes.append(Mistake(source.name, source.line(name), "", "", text))
    given, unknown = overrides(environment, sections)
    mistakes += unknown
    parts = {}
    for section, kind in sections.items():
        part, found = _read_section(section, kind, tables.get(section, {}), given.get(section, {}), source)
        mistakes += found
        if part is not None:
            parts[section] = part
    mistakes += _resolve_mappings(parts, source)
    return parts, mistakes


def _resolve_mappings(parts: dict[str, Any], source: Source) -> Iterator[Mistake]:
    """Put the mappings that subscriptions name into them; yield what is wrong."""
    if TOP not in parts or "mqtt" not in parts:
        return
    mqtt, mappings = parts["mqtt"], parts[TOP]
    if not mappings.own and mappings.folder is None and all(isinstance(one.media, Media) for one in mqtt.subscriptions):
        return
    from agent.mappings.catalog import catalog  # with jmespath, which most gateways need not
    from agent.mappings.mapping import MappingError

    try:
        known = catalog(mappings.own, mappings.folder)
        parts["mqtt"] = replace(mqtt, subscriptions=resolve(mqtt.subscriptions, known))
        return
    except MappingError as error:
        del parts[TOP]
        yield source.mistake(TOP, "mappings_dir" if mappings.folder else "mappings", str(error))
    except ValueError as error:
        yield source.mistake("mqtt", "subscriptions", str(error))
    del parts["mqtt"]


def parts_of(settings: Settings) -> dict[str, Any]:
    """Return the settings of each section."""
    own = {section: getattr(settings, attribute_of(section)) for section in SECTIONS}
    return own | {f"{ways.SECTION}{name}": part for name, part in settings.sources.items()}


def attribute_of(section: str) -> str:
    """Return the name of a section among the settings."""
    return section.replace(".", "_") or "mappings"


def key_of(option: Field[Any]) -> str:
    """Return a setting's key in the file."""
    return option.metadata["key"] or option.name


def sections_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return each section's table by its full name, such as `coap.oscore`."""
    tables = dict(document)
    top = {key_of(option) for option in fields(SECTIONS[TOP])}
    tables[TOP] = {key: tables.pop(key) for key in top if key in tables}
    for section in SECTIONS:
        outer, dot, inner = section.partition(".")
        table = tables.get(outer)
        if dot and isinstance(table, dict) and inner in table:
            tables[section] = table[inner]
            tables[outer] = {key: value for key, value in table.items() if key != inner}
    others = tables.get("sources")
    if isinstance(others, dict) and others and all(isinstance(one, dict) for one in others.values()):
        del tables["sources"]
        tables |= {f"{ways.SECTION}{name}": one for name, one in others.items()}
    return tables


def overrides(
    environment: Mapping[str, str], sections: Collection[str]
) -> tuple[dict[str, dict[str, str]], list[Mistake]]:
    """Return the environment's overrides of sections, by section and key, and the mistakes in the names of others."""
    found: dict[str, dict[str, str]] = {}
    mistakes = []
    for name, value in environment.items():
        path, separator, key = name.removeprefix(OVERRIDE_PREFIX).rpartition(OVERRIDE_SEPARATOR)
        if not name.startswith(OVERRIDE_PREFIX) or not separator:
            continue
        section = path.replace(OVERRIDE_SEPARATOR, ".").lower()
        if section in sections:
            found.setdefault(section, {})[key.lower()] = value
        else:
            message = f"{name}: unknown section{suggestion(section, sections)}"
            mistakes.append(Mistake(ENVIRONMENT, None, "", "", message))
    return found, mistakes


def override_of(section: str, key: str) -> str:
    """Return the name of the environment variable that overrides a key."""
    return f"{OVERRIDE_PREFIX}{section.replace('.', OVERRIDE_SEPARATOR)}{OVERRIDE_SEPARATOR}{key}".upper()


def _syntax_mistake(path: Path, text: str, error: str) -> Mistake:
    """Return the mistake of a text that is no TOML; after it nothing else of the text can be read."""
    if error.startswith(("Cannot overwrite", "Cannot declare")) and (repeated := toml_lines.first_repeated(text)):
        key, first, line = repeated
        return Mistake(str(path), line, "", "", f"{key} is already in line {first}: remove one of the two")
    place = _TOML_PLACE.search(error)
    line = int(place[1]) if place else 1 + text.rstrip("\n").count("\n")
    return Mistake(str(path), line, "", "", f"not TOML: {error}")


def _read_section(
    section: str, kind: type[Any], table: object, given: Mapping[str, str], source: Source
) -> tuple[Any, list[Mistake]]:
    """Return the settings of a section, None where one of its values is wrong or missing; and all mistakes."""
    if not isinstance(table, dict):
        return None, [source.mistake(section, "", "expected a table")]
    options = {key_of(option): option for option in fields(kind)}
    values: dict[str, object] = {}
    unknown, mistakes = [], []
    seen = set()
    for origin, entries in ((source, table), (Source(ENVIRONMENT), given)):
        for key, value in entries.items():
            seen.add(key)
            if key not in options:
                unknown.append(origin.mistake(section, key, f"unknown key{suggestion(key, options)}"))
                continue
            try:
                values[options[key].name] = options[key].metadata["read"](value)
            except ValueError as error:
                mistakes += [origin.mistake(section, key, text) for text in _reasons(options[key], value, error)]
    for key, option in options.items():
        if key not in seen and option.default is MISSING and option.default_factory is MISSING:
            mistakes.append(source.mistake(section, key, f"missing; {option.metadata['help']}"))
    if mistakes:
        return None, [*unknown, *mistakes]
    try:
        return kind(**values), unknown
    except ValueError as error:
        return None, [*unknown, *(_section_mistake(source, section, options, text) for text in texts(error))]


def _section_mistake(source: Source, section: str, options: Mapping[str, object], text: str) -> Mistake:
    key, colon, message = text.partition(": ")
    return source.mistake(section, key, message) if colon and key in options else source.mistake(section, "", text)


def _reasons(option: Field[Any], value: object, error: ValueError) -> Iterator[str]:
    read = option.metadata["read"]
    # Properties, what is in addresses, and a password in place of its file may be secret; a list of tables is too long.
    hidden = read in (readers.properties, readers.address, readers.servers, readers.secret_path) or isinstance(
        error, SettingErrors
    )
    yield from (text if hidden else f"{text}; found {value!r}" for text in texts(error))
