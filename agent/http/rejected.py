"""The resource of the rejected events: reads its query."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from agent.http.response import refusal
from agent.store.read.rejected import RejectSelection

LIMIT = 100
LIMIT_MAX = 1_000
_WORDS = ("via", "device", "reason", "before", "limit")
_DIGITS_MAX = 19
_PATTERN_CHARACTERS_MAX = 256
"""As many as a device's name has."""


def read_selection(query: Mapping[str, str], vias: Collection[str]) -> tuple[RejectSelection, int]:
    """Return which rejected events a query selects, and how many at most; raise Refusal."""
    for word in query:
        if word not in _WORDS:
            raise refusal(400, "bad request", f"{word[:16]}: known are {', '.join(_WORDS)}")
    via = query.get("via", "")
    if via and via not in vias:
        raise refusal(400, "bad request", f"via: expected one of {', '.join(vias)}")
    device = query.get("device", "*")
    if len(device) > _PATTERN_CHARACTERS_MAX:
        raise refusal(400, "bad request", f"device: a pattern has at most {_PATTERN_CHARACTERS_MAX} characters")
    before = _number("before", query["before"], None) if "before" in query else None
    limit = _number("limit", query["limit"], LIMIT_MAX) if "limit" in query else LIMIT
    return RejectSelection(via, device, query.get("reason", ""), None, before), limit


def _number(word: str, text: str, most: int | None) -> int:
    number = int(text) if text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX else 0
    if number < 1 or (most is not None and number > most):
        raise refusal(400, "bad request", f"{word}: expected a number from 1" + (f" to {most}" if most else ""))
    return number
