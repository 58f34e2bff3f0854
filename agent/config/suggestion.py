"""Suggests the nearest known word for an unknown one."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that was probably meant, None where none is near."""
    import difflib  # only a mistake needs it

    return next(iter(difflib.get_close_matches(word, list(known), n=1)), None)


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown word: the nearest known one, or else all of them."""
    names = list(known)
    near = nearest(word, names)
    return f"; did you mean {near}?" if near else f"; known are {', '.join(names)}"
