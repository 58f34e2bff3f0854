"""Compares a bill of materials with versions that are known to be vulnerable: `python -m release.advisories BILL`.

The list is `advisories.toml`. It holds what a release must not contain any more, and replaces no scanner: the bill is
what a scanner reads.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from release.errors import ReleaseError

FILE = Path(__file__).with_name("advisories.toml")


def check(bill: Path) -> None:
    """Raise ReleaseError with all components of the bill that an advisory concerns."""
    found = list(concerned(json.loads(bill.read_text())["components"]))
    if found:
        raise ReleaseError(f"{bill.name} has vulnerable versions:\n" + "\n".join(found))


def concerned(components: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a line for each component and advisory that concerns it."""
    advisories = tomllib.loads(FILE.read_text())["advisory"]
    for component in components:
        name, version = component["name"].lower(), component.get("version")
        for one in advisories:
            if version and name == one["name"] and _before(one["since"], version, one["fixed"]):
                yield f"{name} {version}: {one['id']}, fixed in {one['fixed']}"


def _before(since: str, version: str, fixed: str) -> bool:
    return _numbers(since) <= _numbers(version) < _numbers(fixed)


def _numbers(version: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", version)]


def main() -> int:
    """Check the bill that the command line names."""
    try:
        check(Path(sys.argv[1]))
    except ReleaseError as error:
        print(f"advisories: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
