"""The tests that verify each guarantee, by their marks: `python -m tests.support.guarantees` lists them."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping

from tests.docs.pages import ROOT

GUARANTEES = ROOT / "docs" / "guarantees.md"
WHOLE_PATH = 0
"""The mark of tests that judge the whole path instead of one guarantee."""
_MARK = "pytest.mark.guarantee"


def marked() -> Mapping[int, list[str]]:
    """Return file and function of the marked tests, by the number of their guarantee."""
    tests = defaultdict(list)
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        text = file.read_text()
        if _MARK in text:
            for name, numbers in _marks(ast.parse(text)):
                for number in numbers:
                    tests[number].append(f"{file.relative_to(ROOT)}::{name}")
    return tests


def _marks(tree: ast.Module) -> Iterator[tuple[str, list[int]]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == _MARK:
                    yield node.name, [ast.literal_eval(number) for number in mark.args]


def main() -> None:
    tests = marked()
    for number in sorted(tests):
        print(f"\n## {f'Guarantee {number}' if number else 'The whole path'}: {len(tests[number])} tests\n")
        print("\n".join(f"- `{name}`" for name in tests[number]))


if __name__ == "__main__":
    main()
