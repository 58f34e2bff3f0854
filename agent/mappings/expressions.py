"""JMESPath expressions over a message: compiled once, with bounded work for any body.

Beside JMESPath's own functions there are `lower(text)`, `replace(text, old, new)`, `omit(object, names)` and
`object(name, value)`, without which names in topics and payloads cannot be taken apart.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import jmespath
from jmespath import exceptions, functions, visitor

from agent.mappings.plain import WORK_MAX, Evaluate, ExpressionError, Root, Tree, Work, plain

EXPRESSION_CHARACTERS_MAX: Final = 1_024
_TEXT_UNIT: Final = 64
"""Characters of a text that count as one element."""
_SIMPLE: Final = frozenset({"field", "index"})
_SHARING: Final = frozenset({"multi_select_list", "multi_select_dict"})
"""What may hold one value several times, so that its size grows with the power of its depth."""
_FIRST_ONLY: Final = frozenset(
    {"subexpression", "index_expression", "pipe", "projection", "value_projection", "filter_projection", "flatten"}
)
"""What applies all but its first part to what that yields."""
NAMES: Final = ("body", "topic", "headers", "item")

_QUOTES: Final = """a name with other characters than letters, digits and _ is written in quotes: body."em:0\""""


def compiled(text: str) -> Evaluate:
    """Compile an expression; raise ExpressionError where its syntax is wrong or a function is unknown."""
    if not 0 < len(text) <= EXPRESSION_CHARACTERS_MAX:
        raise ExpressionError(f"expected an expression of at most {EXPRESSION_CHARACTERS_MAX} characters")
    try:
        tree = jmespath.compile(text).parsed
    except (exceptions.JMESPathError, RecursionError) as error:
        raise ExpressionError(f"{text!r}: {str(error).splitlines()[0]}; {_QUOTES}") from None
    _check_functions(tree, text)
    _check_names(tree, text)
    found = None if _shares_what_shares(tree) else plain(tree)
    return _interpreted(tree, text) if found is None else lambda root, _: found(root)


def pieces(text: str) -> list[str | Evaluate]:
    """Compile a text with expressions in braces: literal parts and expressions in turns."""
    return [part if at % 2 == 0 else compiled(part) for at, part in enumerate(_split(text))]


def _split(text: str) -> list[str]:
    """Return literal parts and expressions in turns; braces within an expression are balanced."""
    parts, start, depth = [], 0, 0
    for at, character in enumerate(text):
        if (character, depth) in (("{", 0), ("}", 1)):
            parts.append(text[start:at])
            start = at + 1
        depth += (character == "{") - (character == "}")
        if depth < 0:
            break
    if depth:
        raise ExpressionError(f"{text!r}: the braces are not balanced")
    return [*parts, text[start:]]


def _interpreted(tree: Tree, text: str) -> Evaluate:
    def evaluate(root: Root, work: Work) -> object:
        try:
            return _Interpreter(work).visit(tree, root)
        except (exceptions.JMESPathError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
            if isinstance(error, ExpressionError):
                raise
            raise ExpressionError(f"{text!r}: {_first_line(error)}") from None

    return evaluate


def _first_line(error: Exception) -> str:
    if isinstance(error, exceptions.JMESPathTypeError):  # its own text holds the value
        expected = " or ".join(map(str, error.expected_types))
        return f"{error.function_name}() takes {expected}, not {error.actual_type}"
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__


def _parts(tree: Tree, most: int | None = None) -> list[Tree]:
    return [child for child in tree["children"][:most] if isinstance(child, dict)]


def _check_functions(tree: Tree, text: str) -> None:
    """Raise ExpressionError where a function is unknown, which JMESPath itself would find with the first message."""
    if tree["type"] == "function_expression" and tree["value"] not in _FUNCTIONS.FUNCTION_TABLE:
        raise ExpressionError(f"{text!r}: unknown function {tree['value']}()")
    for part in _parts(tree):
        _check_functions(part, text)


def _check_names(tree: Tree, text: str) -> None:
    """Raise ExpressionError where an expression begins with an unknown name."""
    if tree["type"] == "field" and tree["value"] not in NAMES:
        raise ExpressionError(f"{text!r}: unknown name {tree['value']!r}; it begins with one of {', '.join(NAMES)}")
    if tree["type"] != "expref":
        for part in _parts(tree, 1 if tree["type"] in _FIRST_ONLY else None):
            _check_names(part, text)


def _shares_what_shares(tree: Tree) -> bool:
    """Whether an expression makes objects from made objects: only the interpreter counts that growth."""
    made = tree["type"] == "subexpression" and any(map(_makes, tree["children"][:-1]))
    return made or any(map(_shares_what_shares, _parts(tree)))


def _makes(tree: Tree) -> bool:
    return tree["type"] in _SHARING or any(map(_makes, _parts(tree)))


class _Functions(functions.Functions):
    @functions.signature({"types": ["string"]})
    def _func_lower(self, text: str) -> str:
        return text.lower()

    @functions.signature({"types": ["string"]}, {"types": ["string"]}, {"types": ["string"]})
    def _func_replace(self, text: str, old: str, new: str) -> str:
        if not old:
            return text
        _check_length(len(text) + text.count(old) * (len(new) - len(old)))
        return text.replace(old, new)

    @functions.signature({"types": ["string"]}, {"types": ["array-string"]})
    def _func_join(self, between: str, texts: Sequence[str]) -> str:
        _check_length(len(between) * len(texts) + sum(map(len, texts)))
        return between.join(texts)

    @functions.signature({"types": ["object"]}, {"types": ["array-string"]})
    def _func_omit(self, entries: Mapping[str, object], names: Sequence[str]) -> Mapping[str, object]:
        left_out = set(names)
        return {name: value for name, value in entries.items() if name not in left_out}

    @functions.signature({"types": ["string"]}, {"types": []})
    def _func_object(self, name: str, value: object) -> Mapping[str, object] | None:
        return None if value is None else {name: value}


def _check_length(characters: int) -> None:
    if characters > WORK_MAX * _TEXT_UNIT:
        raise ExpressionError(f"the expressions take more than {WORK_MAX} steps for this message")


_FUNCTIONS: Final = _Functions()
_OPTIONS: Final = jmespath.Options(custom_functions=_FUNCTIONS)


class _Interpreter(visitor.TreeInterpreter):
    """JMESPath's interpreter, which counts its steps and the size of their results."""

    def __init__(self, work: Work) -> None:
        super().__init__(_OPTIONS)
        self._work = work

    def visit(self, node: Any, *arguments: Any, **options: Any) -> object:
        value: object = super().visit(node, *arguments, **options)
        steps = 1
        if isinstance(value, list | dict):
            steps += len(value) if node["type"] not in _SIMPLE and node["type"] != "current" else 0
        elif isinstance(value, str):
            steps += len(value) // _TEXT_UNIT
        self._work.spend(steps)
        if node["type"] in _SHARING or (node["type"] == "function_expression" and node["value"] == "merge"):
            self._spend_within(value)
        return value

    def _spend_within(self, value: object) -> None:
        """Spend a step for each value within a value, for repeated ones each time."""
        waiting = [value]
        while waiting:
            inner = waiting.pop()
            if isinstance(inner, list | dict):
                self._work.spend(len(inner))
                waiting.extend(inner.values() if isinstance(inner, dict) else inner)
            elif isinstance(inner, str):
                self._work.spend(len(inner) // _TEXT_UNIT)
