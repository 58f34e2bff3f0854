"""The reference of the configuration file, and the file of the package, both written from the settings.

Run it for docs/configuration.md.
"""

import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

from agent.config import readers, subscriptions
from agent.config.identity_rules import read_rules
from agent.config.lanes import read_lanes
from agent.config.load import SECTIONS, key_of

_HEAD = """# Configuration

<!-- Written by `python -m agent.config.reference`; change agent/config/settings.py instead. -->

The agent reads one TOML file: `--config FILE`, else `$ONCEGATE_CONFIG`, else `/etc/oncegate/oncegate.toml`.
The smallest one names the gateway and the brokers:

```toml
[gateway]
id = "gw1"

[kafka]
bootstrap_servers = "kafka-1:9092,kafka-2:9092"
```

`oncegate check` reads the file and reports errors in it. An unknown key is an error that names it. A change takes
effect when the agent is restarted. Environment variables precede the file: `ONCEGATE_SECTION__KEY`, such as
`ONCEGATE_COAP__BIND` or `ONCEGATE_COAP__OSCORE__REQUIRED`; tables have none.

Here `coap.oscore.required` is the key `required` of the section `[coap.oscore]`; keys without a point precede sections.

| key | default | expected | meaning |
|---|---|---|---|"""
TABLES = (readers.properties, subscriptions.read_subscriptions, read_rules, read_lanes, subscriptions.read_mappings)
"""Readers of TOML tables, which have no form as one environment variable."""
_DURATIONS = {86_400: "d", 3_600: "h", 60: "m", 1: "s"}
_SIZES = {1 << 30: "GiB", 1 << 20: "MiB", 1 << 10: "KiB"}


def main() -> None:
    """Print the document."""
    print(document(), end="")


def document() -> str:
    """Return the reference as Markdown."""
    rows = (_row(name, option) for name, kind in SECTIONS.items() for option in fields(kind))
    return "\n".join([_HEAD, *rows, ""])


def _row(section: str, option: Field[Any]) -> str:
    key = f"{section}.{key_of(option)}" if section else key_of(option)
    cells = (f"`{key}`", default_of(option), expected_by(option.metadata["read"]), option.metadata["help"])
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def expected_by(read: readers.Read) -> str:
    """Return what a reader expects, from its own error for an invalid value."""
    for probe in (0, object()):
        try:
            read(probe)
        except ValueError as error:
            return str(error).removeprefix("expected ")
    raise TypeError("a reader of settings takes anything")


def default_of(option: Field[Any]) -> str:
    """Return an option's default for the reference: `required`, `none`, or TOML between backticks."""
    if option.default is MISSING and option.default_factory is MISSING:
        return "required"
    value = option.default if option.default_factory is MISSING else option.default_factory()
    return "none" if value in (None, {}, ()) else f"`{_literal(option.metadata['read'], value)}`"


def _literal(read: readers.Read, value: object) -> str:
    """Return a default as in the file."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | Path):
        return f'"{value}"'
    if read in (readers.duration, readers.positive_duration) and isinstance(value, float):
        return next(_measures(int(value), _DURATIONS), str(value))
    if read in (readers.size, readers.positive_size) and isinstance(value, int):
        return next(_measures(value, _SIZES), str(value))
    return str(value)


def _measures(number: int, names: dict[int, str]) -> Iterator[str]:
    return (f'"{number // size}{name}"' for size, name in names.items() if number and number % size == 0)


_EXAMPLE_HEAD = """\
# The configuration of the Oncegate gateway agent. Two settings have no default: gateway.id and
# kafka.bootstrap_servers. All others are listed as comments, with their defaults; tables with an example.
#
# `oncegate check` reports errors in this file, `oncegate doctor` problems around the gateway. A change takes effect
# when the agent is restarted: systemctl restart oncegate
#
# Secrets belong in files of /etc/oncegate/secrets (mode 600, owner root): systemd passes them to the service, and
# `credential:NAME` refers to one here.
"""
_WIDTH = 110
_EXAMPLE_TABLES = {
    ".mappings": '[[mappings]]\nname = "acme"\ndevice = "acme:{body.serial}"\nid = "body.number"\ndata = "body.values"',
    "mqtt.subscriptions": '[[mqtt.subscriptions]]\ntopic = "plant/{device}/events"\nformat = "json"',
    "identity.rules": '[[identity.rules]]\ndevice = "urn:dev:mac:*"\nfields = ["device", "type", "id", "boot", "data"]',
    "kafka.properties": 'properties = { "security.protocol" = "SSL" }',
    "forward.lanes": '[[forward.lanes]]\nname = "alarms"\ntype = "alarm*"\npriority = 10',
}
"""An example of each table, which has no form as one value."""
_REQUIRED = {"id": '"gw1"', "bootstrap_servers": '"kafka-1:9092,kafka-2:9092"'}


def example() -> str:
    """Return the file's text."""
    lines = [_EXAMPLE_HEAD]
    for name, kind in SECTIONS.items():
        options = (line for option in fields(kind) for line in _example_option(name, option))
        lines += [f"[{name}]" if name else "# Above all sections:", *options, ""]
    return "\n".join(lines) + "\n"


def _example_option(section: str, option: Field[Any]) -> Iterator[str]:
    read, key = option.metadata["read"], key_of(option)
    text = f"{option.metadata['help']} ({expected_by(read)})"
    yield from textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# ")
    if read in TABLES:
        yield from (f"# {line}" for line in _EXAMPLE_TABLES[f"{section}.{key}"].splitlines())
        return
    required = option.default is MISSING and option.default_factory is MISSING
    default = _REQUIRED[key] if required else default_of(option).strip("`")
    yield f"# {key} =" if default == "none" else f"# {key} = {default}"


if __name__ == "__main__":
    main()
