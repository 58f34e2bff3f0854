"""The words that a sensor says beside its body, in the Uri-Query: `?d=`, `?id=`, `?boot=`, `?t=`, `?type=`, `?now`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

NOW = "now"
"""Asks for the gateway's time in the answer."""


class QueryError(ValueError):
    """The query is not made of words with one value each."""


class Query(NamedTuple):
    """What stood in the query."""

    words: Mapping[str, str]
    """What it says of the events."""
    asks_time: bool = False


def read_query(texts: Iterable[str]) -> Query:
    """Read the Uri-Query options of a request; which words there are, decoding knows.

    Raises QueryError.
    """
    words: dict[str, str] = {}
    asks_time = False
    for text in texts:
        if text == NOW:
            asks_time = True
            continue
        word, equals, value = text.partition("=")
        if not equals:
            raise QueryError(f"query: {word[:16]!r} has no value")
        if word in words:
            raise QueryError(f"query: {word[:16]!r} twice")
        words[word] = value
    return Query(words, asks_time)
