"""What mypyc translates wrongly, or into a crash, does not occur in the modules that it compiles."""

import ast
from pathlib import Path

import pytest

from tests.compiled.environment import MODULES, ROOT

SOURCES = sorted(ROOT / f"{name.replace('.', '/')}.py" for name in MODULES)
pytestmark = pytest.mark.skipif(not SOURCES[0].exists(), reason="the sources are not here: the compiled form runs")
PAUSES = (ast.Await, ast.Yield, ast.YieldFrom, ast.AsyncWith, ast.AsyncFor)
C_KEYWORDS = {"_thread", "_Bool", "_Complex", "_Atomic", "_Noreturn", "_Generic"}


def functions(file: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    nodes = ast.walk(ast.parse(file.read_text()))
    return [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: str(file.relative_to(ROOT)))
def test_one_name_stands_for_errors_of_one_type_in_a_function(file: Path) -> None:
    """The type of the first clause is taken for the name's, and any other error then is a TypeError."""
    for function in functions(file):
        types: dict[str, set[str]] = {}
        for node in ast.walk(function):
            if isinstance(node, ast.ExceptHandler) and node.name and node.type:
                types.setdefault(node.name, set()).add(ast.unparse(node.type))
        assert {name: found for name, found in types.items() if len(found) > 1} == {}, function.name


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_typed_dict_names_no_class_that_follows_it(file: Path) -> None:
    """Its annotations are evaluated where it stands; a class that is not there yet is a null pointer."""
    classes = [node for node in ast.parse(file.read_text()).body if isinstance(node, ast.ClassDef)]
    for at, found in enumerate(classes):
        if "TypedDict" in {ast.unparse(base) for base in found.bases}:
            named = {node.id for node in ast.walk(found) if isinstance(node, ast.Name)}
            assert named & {later.name for later in classes[at + 1 :]} == set()


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: str(file.relative_to(ROOT)))
def test_no_attribute_becomes_a_keyword_of_c(file: Path) -> None:
    attributes = {node.attr for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Attribute)}
    assert attributes & C_KEYWORDS == set()


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: str(file.relative_to(ROOT)))
def test_no_coroutine_or_generator_pauses_while_it_handles_an_error_or_cleans_up(file: Path) -> None:
    """After an `await` in a `finally`, an error that the caller is just handling would be raised again."""
    for function in functions(file):
        blocks = [node for node in ast.walk(function) if isinstance(node, ast.Try)]
        guarded = [node for block in blocks for node in (*block.finalbody, *block.handlers)]
        pauses = [node for part in guarded for node in ast.walk(part) if isinstance(node, PAUSES)]
        assert pauses == [], function.name
