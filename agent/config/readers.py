"""The readers of settings: durations, sizes, names; each takes a TOML value or an environment variable's text."""

import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import TypeVar

from contract import files

Read = Callable[[object], object]
"""Converts a value of the file to the setting's; raises ValueError with the expected form."""

_Number = TypeVar("_Number", int, float)
_Read = TypeVar("_Read")

Span = tuple[int, int]
"""A span of the day, in minutes of it: from the first on, up to the last, which may be of the next day."""

_MEASURE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", re.ASCII)
_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_BYTES = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "kB": 10**3, "MB": 10**6, "GB": 10**9}
PORT_MAX = 65_535
_LISTEN = re.compile(r"(?:\[(?P<v6>[^\]]+)\]|(?P<v4>[0-9.]+)):(?P<port>[0-9]{1,5})", re.ASCII)
_SERVER = re.compile(r"(?:\w+://)?(?:\[[^][\s]+\]|[^][\s:;/]+)(?::(?P<port>[0-9]{1,5}))?", re.ASCII)
_HOURS = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-3]):([0-5][0-9])", re.ASCII)
_HOURS_EXPECTED = 'expected a list of hours such as ["22:00-06:00"]'
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,126}")
_KAFKA_TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")

SECRETS_FOLDER = Path("/etc/oncegate/secrets")
"""The folder of the secrets, for systemd and for commands outside the service."""


def text(value: object) -> str:
    """Read text that is not empty."""
    if not isinstance(value, str) or not value:
        raise ValueError("expected text")
    return value


def address(value: object) -> str:
    """Read an address, or several; none has a user and a password, since addresses are logged."""
    found = text(value)
    if "@" in found:
        raise ValueError(
            "expected an address without user and password, which belong in kafka.properties_file, or in "
            "mqtt.username and mqtt.password_file"
        )
    return found


def servers(value: object) -> str:
    """Read the addresses of Kafka's brokers; a port that is too large would be taken for another one."""
    found = address(value) if isinstance(value, str) and value else ""
    matches = [_SERVER.fullmatch(server) for server in filter(None, map(str.strip, found.split(",")))]
    if not matches or not all(match and 1 <= int(match["port"] or 1) <= PORT_MAX for match in matches):
        raise ValueError('expected brokers such as "kafka-1:9092,kafka-2:9092", each with a port of 1 to 65535')
    return found


def _matching(pattern: re.Pattern[str], expected: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise ValueError(f"expected {expected}")
        return value

    return read


name = _matching(_NAME, "a name of letters, digits, dots, hyphens and underscores, 127 at most")
"""Reads a name that is valid in URNs, topics and headers."""
kafka_topic = _matching(_KAFKA_TOPIC, "a topic of Kafka: letters, digits, dots, hyphens and underscores, 249 at most")


def path(value: object) -> Path:
    """Read a path."""
    return Path(text(value))


file = partial(path)
"""Reads the path of a file that the service must be able to read."""
secret = partial(text)
"""Reads text that no command shows."""


def secret_path(value: object) -> Path:
    """Read the path of a file that holds a secret; `credential:NAME` is one that systemd passes."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"expected the path of a file, or {files.CREDENTIAL}NAME for one in {SECRETS_FOLDER}")
    return files.secret_path(value, SECRETS_FOLDER)


def boolean(value: object) -> bool:
    """Read true or false."""
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return value == "true"
    raise ValueError("expected true or false")


def _whole(least: int, expected: str, most: float = math.inf) -> Callable[[object], int]:
    def read(value: object) -> int:
        if isinstance(value, str) and value.isascii() and value.isdigit():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"expected {expected}")
        return value

    return read


count = _whole(0, "a whole number, 0 or more")
positive = _whole(1, "a whole number, 1 or more")
port = _whole(1, "a port, 1 to 65535", PORT_MAX)


def listen_address(value: object) -> str:
    """Read an address to listen on and its port, both as numbers; port 0 is any free one."""
    match = _LISTEN.fullmatch(value) if isinstance(value, str) else None
    try:
        if match is None or int(match["port"]) > PORT_MAX:
            raise ValueError
        version = IPv6Address if match["v6"] else IPv4Address
        version(match["v6"] or match["v4"])
    except ValueError:
        raise ValueError('expected an address and a port such as "[::]:5683" or "127.0.0.1:8580"') from None
    return match[0]


def _measure(
    units: Mapping[str, float], number: Callable[[float], _Number], above: int, expected: str
) -> Callable[[object], _Number]:
    def read(value: object) -> _Number:
        written = str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
        match = _MEASURE.fullmatch(written) if isinstance(written, str) else None
        if match is None or match[2] not in units or (found := number(float(match[1]) * units[match[2]])) <= above:
            raise ValueError(f"expected {expected}")
        return found

    return read


duration = _measure(_SECONDS, float, -1, 'a duration such as "30s", "5m", "7d", or seconds as a number')
"""Reads seconds."""
positive_duration = _measure(_SECONDS, float, 0, 'a duration such as "30s", longer than 0')
size = _measure(_BYTES, int, -1, 'a size such as "64KiB", "1GiB", or bytes as a number')
"""Reads bytes."""
positive_size = _measure(_BYTES, int, 0, 'a size such as "20kB", 1 byte or more')


def entry(table: Mapping[str, object], key: str, read: Callable[[object], _Read]) -> _Read:
    """Read a table's value under a key, which names what is wrong with it; raise ValueError."""
    try:
        return read(table[key])
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from error


def hours(value: object) -> tuple[Span, ...]:
    """Read spans of the day such as "22:00-06:00": a list, or one text with commas between."""
    found = value.split(",") if isinstance(value, str) else value
    if not isinstance(found, list):
        raise ValueError(_HOURS_EXPECTED)
    return tuple([_span(one) for one in found])


def _span(text: object) -> Span:
    match = _HOURS.fullmatch(text) if isinstance(text, str) else None
    first, last = (int(match[at]) * 60 + int(match[at + 1]) for at in (1, 3)) if match else (0, 0)
    if first == last:
        raise ValueError(_HOURS_EXPECTED)
    return first, last


def choice(*words: str) -> Read:
    """Read one of some words."""

    def read(value: object) -> str:
        value = str(value) if type(value) is int else value
        if not isinstance(value, str) or value not in words:
            raise ValueError(f"expected one of {', '.join(words)}")
        return value

    return read


def pattern(value: object) -> str:
    """Read a glob pattern on names, in NFC as the names of devices and types are."""
    return unicodedata.normalize("NFC", text(value))


def patterns(value: object) -> tuple[str, ...]:
    """Read glob patterns: a list, or one text with commas between, as the environment has it."""
    found = value.split(",") if isinstance(value, str) else value
    if not isinstance(found, list) or not all(isinstance(pattern, str) and pattern for pattern in found):
        raise ValueError('expected a list of patterns such as ["urn:dev:mac:*"]')
    return tuple(map(pattern, found))


def properties(value: object) -> dict[str, str]:
    """Read a table of librdkafka properties; TOML reads the dots of a name without quotes as nested tables."""
    if not isinstance(value, dict):
        raise ValueError("expected a table of properties")
    return dict(_flat(value, ""))


def _flat(table: dict[str, object], prefix: str) -> Iterator[tuple[str, str]]:
    for key, item in table.items():
        if isinstance(item, dict):
            yield from _flat(item, f"{prefix}{key}.")
        else:
            yield prefix + key, str(item).lower() if isinstance(item, bool) else str(item)
