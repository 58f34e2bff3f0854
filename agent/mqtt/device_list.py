"""Reads Zigbee2MQTT's lists entry by entry: one of some megabytes must not block the event loop."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from json import JSONDecoder

from agent.decode.zigbee2mqtt import urn

ENTRY_CHARACTERS_MAX = 1 << 17
"""Bound of a device or group: Zigbee2MQTT writes 5 to 20 kB. An entry is decoded in some 20 ms at most."""
_LOOK_AHEAD = (1 << 12, 1 << 15, ENTRY_CHARACTERS_MAX)
"""Characters to decode an entry from, tried in turn: copying the maximum for each `{}` would take hours."""
NAME_CHARACTERS_MAX = 1_024
"""Bound of a name that is kept: a topic may have 65,535 bytes, and a thousand topics may wait."""

_decode = JSONDecoder().raw_decode
_space = re.compile(r"[ \t\n\r]*").match


class DeviceListReader:
    """Reads one list; `learn` is called with its content at its end."""

    def __init__(self, learn: Callable[[str, Mapping[str, str | None]], None], topic: str, payload: bytes) -> None:
        self._learn = learn
        self.topic = topic
        self._entries = _read(payload)
        self._addresses: dict[str, str | None] = {}
        """The URN of each name, built entry by entry: a list of 4 MiB may hold 66,000 names."""
        self.problem = ""
        """Why the payload is no list."""

    def read(self, enough: Callable[[], bool]) -> bool | None:
        """Read until `enough` returns True; return whether the payload is a list, None before its end."""
        try:
            for entry in self._entries:
                name = entry.get("friendly_name")
                if isinstance(name, str) and len(name) <= NAME_CHARACTERS_MAX:
                    self._addresses[name] = urn(entry.get("ieee_address"))
                if enough():
                    return None
        except (ValueError, RecursionError) as error:
            self.problem = str(error)
            return False
        self._learn(self.topic, self._addresses)
        return True


def read_entries(text: str) -> Iterator[dict[str, object]]:
    """Yield the objects of a JSON array; raise ValueError where it is none, or an entry is too long."""
    at = _after(text, 0, "[")
    if not text.startswith("]", at):
        while True:
            entry, at = _entry(text, at)
            yield entry
            if not text.startswith(",", at):
                break
            at = _after(text, at, ",")
    if _after(text, at, "]") != len(text):
        raise ValueError("something follows the list")


def _read(payload: bytes) -> Iterator[dict[str, object]]:
    yield from read_entries(payload.decode())


def _entry(text: str, at: int) -> tuple[dict[str, object], int]:
    """Return an object, and the position of the next character that is no space."""
    if not text.startswith("{", at):
        raise ValueError("an entry is no object")
    for size in _LOOK_AHEAD:
        try:
            entry, length = _decode(text[at : at + size])
        except ValueError:
            if at + size >= len(text):
                raise
        else:
            return entry, _skip(text, at + length)
    raise ValueError(f"an entry has more than {ENTRY_CHARACTERS_MAX} characters")


def _after(text: str, at: int, sign: str) -> int:
    """Return the position after this character, which must be next, and after spaces; raise ValueError."""
    at = _skip(text, at)
    if not text.startswith(sign, at):
        raise ValueError(f"no {sign} in its place")
    return _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    space = _space(text, at)
    assert space is not None  # it may be empty
    return space.end()
