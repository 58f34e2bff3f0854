"""The words that a sensor says beside its body, in the Uri-Query: `?d=`, `?id=`, `?boot=`, `?t=`, `?type=`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class QueryError(ValueError):
    """The query is not made of words with one value each."""


def read_query(texts: Iterable[str]) -> Mapping[str, str]:
    """Read the Uri-Query options of a request; which words there are, decoding knows.

    Raises QueryError.
    """
    words: dict[str, str] = {}
    for text in texts:
        word, equals, value = text.partition("=")
        if not equals:
            raise QueryError(f"query: {word[:16]!r} has no value")
        if word in words:
            raise QueryError(f"query: {word[:16]!r} twice")
        words[word] = value
    return words
