"""Lists of Zigbee2MQTT, read entry by entry: one of some megabytes must not keep the event loop from other work."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from json import JSONDecoder

from agent.decode.zigbee2mqtt import urn

ENTRY_CHARACTERS_MAX = 1 << 17
"""Of a device or group: Zigbee2MQTT writes 5 to 20 kB. It is read in one piece, in some 20 ms at most."""
_LOOK_AHEAD = (1 << 12, 1 << 15, ENTRY_CHARACTERS_MAX)
"""Characters that an entry is looked for in, one after the other: copying the most for each `{}` would take hours."""
NAME_CHARACTERS_MAX = 1_024
"""Of a name that is learned, waited for or remembered: a topic may have 65,535 bytes, and a thousand topics wait."""

_decode = JSONDecoder().raw_decode
_space = re.compile(r"[ \t\n\r]*").match


class Reading:
    """One list that is being read; what it holds is learned at its end."""

    def __init__(self, learn: Callable[[str, Mapping[str, str | None]], None], topic: str, payload: bytes) -> None:
        self._learn = learn
        self.topic = topic
        self._entries = _read(payload)
        self._addresses: dict[str, str | None] = {}
        """The URN of each name. Made entry by entry: a list of 4 MiB may hold 66,000 names."""
        self.problem = ""
        """Why it is no list."""

    def go_on(self, enough: Callable[[], bool]) -> bool | None:
        """Read until it is enough; return whether it was a list, None where it is not read to its end."""
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
    """Read an object; return it and where the next sign is."""
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
    """Return where the sign after this one is, which has to be there."""
    at = _skip(text, at)
    if not text.startswith(sign, at):
        raise ValueError(f"no {sign} in its place")
    return _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    space = _space(text, at)
    assert space is not None  # it may be empty
    return space.end()
