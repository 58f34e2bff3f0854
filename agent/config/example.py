"""Generates the configuration file of the package: every option with its meaning."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from typing import Any

from agent.config.load import SECTIONS, key_of
from agent.config.reference import TABLES, default_of, expected_by

_HEAD = """\
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
_TABLES = {
    ".mappings": '[[mappings]]\nname = "acme"\ndevice = "acme:{body.serial}"\nid = "body.number"\ndata = "body.values"',
    "mqtt.subscriptions": '[[mqtt.subscriptions]]\ntopic = "plant/{device}/events"\nformat = "json"',
    "identity.rules": '[[identity.rules]]\ndevice = "urn:dev:mac:*"\nfields = ["device", "type", "id", "boot", "data"]',
    "kafka.properties": 'properties = { "security.protocol" = "SSL" }',
    "forward.lanes": '[[forward.lanes]]\nname = "alarms"\ntype = "alarm*"\npriority = 10',
}
"""An example of each table, which has no form as one value."""
_REQUIRED = {"id": '"gw1"', "bootstrap_servers": '"kafka-1:9092,kafka-2:9092"'}


def main() -> None:
    """Print the file."""
    print(example(), end="")


def example() -> str:
    """Return the file's text."""
    return "\n".join([_HEAD, *(line for name, kind in SECTIONS.items() for line in _section(name, kind))]) + "\n"


def _section(name: str, kind: type[Any]) -> Iterator[str]:
    yield f"[{name}]" if name else "# Above all sections:"
    for option in fields(kind):
        yield from _option(name, option)
    yield ""


def _option(section: str, option: Field[Any]) -> Iterator[str]:
    read, key = option.metadata["read"], key_of(option)
    text = f"{option.metadata['help']} ({expected_by(read)})"
    yield from textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# ")
    if read in TABLES:
        yield from (f"# {line}" for line in _TABLES[f"{section}.{key}"].splitlines())
        return
    required = option.default is MISSING and option.default_factory is MISSING
    default = _REQUIRED[key] if required else default_of(option).strip("`")
    yield f"# {key} =" if default == "none" else f"# {key} = {default}"


if __name__ == "__main__":
    main()
