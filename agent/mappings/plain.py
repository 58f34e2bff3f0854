"""The bounded work of expressions, and functions for plain ones, which take a tenth of the interpreter's time.

Plain are fields, indices, literals, comparisons for equality, `||`, `&&`, `!` and objects of such. Each part of them is
evaluated once at most, so their work is bounded by their length. They yield what JMESPath's interpreter does.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

Plain = Callable[[object], object]
"""Applies an expression to a value; returns None where it yields nothing."""
Tree = Mapping[str, Any]
"""An expression as `jmespath` parses it."""


def plain(tree: Tree) -> Plain | None:
    """Return the function of an expression; None where it is not plain."""
    make = _MAKERS.get(tree["type"])
    if make is None:
        return None
    parts = [part for child in tree["children"] if (part := plain(child)) is not None]
    return make(tree, parts) if len(parts) == len(tree["children"]) else None


def is_true(value: object) -> bool:
    """Whether a value counts as true (JMESPath: all but null, false, and what is empty; 0 does)."""
    return bool(value) or (value is not None and value is not False and not isinstance(value, str | list | dict))


def _field(tree: Tree, _: Sequence[Plain]) -> Plain:
    name = tree["value"]
    return lambda value: value.get(name) if isinstance(value, dict) else None


def _index(tree: Tree, _: Sequence[Plain]) -> Plain:
    at: int = tree["value"]
    return lambda value: value[at] if isinstance(value, list) and -len(value) <= at < len(value) else None


def _chain(tree: Tree, parts: Sequence[Plain]) -> Plain:
    first, *others = parts

    def chain(value: object) -> object:
        value = first(value)
        for part in others:
            if value is None:
                return None
            value = part(value)
        return value

    return chain


def _current(tree: Tree, parts: Sequence[Plain]) -> Plain:
    return lambda value: value


def _literal(tree: Tree, parts: Sequence[Plain]) -> Plain:
    written: object = tree["value"]
    return lambda value: written


def _or(tree: Tree, parts: Sequence[Plain]) -> Plain:
    first, second = parts

    def either(value: object) -> object:
        found = first(value)
        return found if is_true(found) else second(value)

    return either


def _and(tree: Tree, parts: Sequence[Plain]) -> Plain:
    first, second = parts

    def both(value: object) -> object:
        found = first(value)
        return second(value) if is_true(found) else found

    return both


def _not(tree: Tree, parts: Sequence[Plain]) -> Plain:
    (part,) = parts
    return lambda value: not is_true(part(value))


def _comparator(tree: Tree, parts: Sequence[Plain]) -> Plain | None:
    first, second = parts
    wanted = {"eq": True, "ne": False}.get(tree["value"])
    return None if wanted is None else lambda value: _equal(first(value), second(value)) is wanted


def _equal(first: object, second: object) -> bool:
    """Whether two values are equal; 0 and 1 are not false and true."""
    return first == second and isinstance(first, bool) == isinstance(second, bool)


def _object(tree: Tree, parts: Sequence[Plain]) -> Plain:
    entries = [(child["value"], part) for child, part in zip(tree["children"], parts, strict=True)]
    return lambda value: None if value is None else {name: part(value) for name, part in entries}


_MAKERS: Final[Mapping[str, Callable[[Tree, Sequence[Plain]], Plain | None]]] = {
    "field": _field,
    "index": _index,
    "subexpression": _chain,
    "index_expression": _chain,
    "identity": _current,
    "current": _current,
    "literal": _literal,
    "or_expression": _or,
    "and_expression": _and,
    "not_expression": _not,
    "comparator": _comparator,
    "multi_select_dict": _object,
    "key_val_pair": lambda tree, parts: parts[0],
}


WORK_MAX: Final = 30_000
"""Steps, and elements of intermediate results, that the expressions of one message may take; some 20 ms."""

Root = Mapping[str, object]
"""What an expression sees: `body`, `topic`, `headers`, and with `each` also `item`."""


class ExpressionError(ValueError):
    """An expression cannot be compiled, or cannot be applied to this message."""


class Work:
    """Counts the work of the expressions of one message."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = WORK_MAX

    def spend(self, steps: int) -> None:
        """Raise ExpressionError where the work is used up."""
        self.left -= steps
        if self.left < 0:
            raise ExpressionError(f"the expressions take more than {WORK_MAX} steps for this message")


Evaluate = Callable[[Root, Work], object]
"""Applies an expression; returns None where it yields nothing. Raises ExpressionError."""
