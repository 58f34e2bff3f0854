"""The names of classes, the length of functions, and the form of log messages, in all sources."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache

import pytest

from agent.log_pairs import PAIRS
from tests.docs.pages import ROOT

PACKAGES = ("agent", "benchmarks", "cloud", "contract", "models", "release", "simulators")
FUNCTION_LINES_MAX = 60
LEVELS = {"debug": 0, "info": 0, "warning": 0, "error": 0, "exception": 0, "critical": 0, "log": 1}
"""The place of the message among the arguments of a logger's methods."""
TABLES = "agent/store/schema/tables.py"
SQL = {
    **{table: {TABLES} for table in ("events", "epochs", "batches", "processed", "facts", "rejected")},
    "gaps": {TABLES, "agent/store/schema/gaps.py"},
    "fingerprints": {TABLES, "agent/store/fingerprints/fingerprint_rows.py"},
    "segments": {TABLES, "agent/store/fingerprints/segments.py"},
    **{table: {"agent/store/fingerprints/segments.py"} for table in ("sealed", "forgotten")},
}
"""The modules that contain the statements about a table; `tables.py` also has those about several tables."""
_NAMED = re.compile(rf"\b(?:FROM|INTO|UPDATE)\s+({'|'.join(SQL)})\b")


@cache
def sources(package: str) -> dict[str, ast.Module]:
    files = (ROOT / package).rglob("*.py")
    return {str(file.relative_to(ROOT)): ast.parse(file.read_text()) for file in sorted(files)}


def messages(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS:
            logger = node.func.value
            if isinstance(logger, ast.Name) and logger.id.strip("_") in ("log", "logger"):
                yield node.args[LEVELS[node.func.attr]]


def template(message: ast.expr) -> str:
    """Return a message, with `x` in place of what an f-string inserts."""
    if isinstance(message, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in message.values)
    return str(message.value) if isinstance(message, ast.Constant) else ast.unparse(message)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_public_class_name_has_one_meaning_in_a_package(package: str) -> None:
    places = defaultdict(list)
    for file, tree in sources(package).items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{file}:{node.lineno}")
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


@pytest.mark.parametrize("package", [*PACKAGES, "tests"])
def test_a_function_is_short(package: str) -> None:
    long = {
        f"{file}:{node.lineno}": node.end_lineno - node.lineno + 1
        for file, tree in sources(package).items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None
    }
    assert {place: lines for place, lines in long.items() if lines > FUNCTION_LINES_MAX} == {}


@pytest.mark.parametrize("package", ["agent", "cloud", "contract", "simulators"])
def test_a_log_message_consists_of_keys_and_values(package: str) -> None:
    logged = [(file, template(message)) for file, tree in sources(package).items() for message in messages(tree)]
    assert [(file, message) for file, message in logged if PAIRS.fullmatch(message) is None] == []


@pytest.mark.parametrize("package", ["agent", "cloud"])
def test_no_default_of_an_argument_is_a_clock(package: str) -> None:
    """It is bound at the import, so the schedules (tests/schedules/replaced.py) could not replace it."""
    bound = [
        f"{file}:{default.lineno}"
        for file, tree in sources(package).items()
        for node in ast.walk(tree)
        if isinstance(node, ast.arguments)
        for default in (*node.defaults, *node.kw_defaults)
        if isinstance(default, ast.Attribute) and ast.unparse(default.value) == "time"
    ]
    assert bound == []


def test_the_sql_of_a_table_is_in_its_module() -> None:
    places = defaultdict(set)
    for file, tree in sources("agent").items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for table in _NAMED.findall(node.value):
                    places[table].add(file)
    assert places == SQL
