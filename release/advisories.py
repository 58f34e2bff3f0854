"""Compares a bill of materials with versions that are known to be vulnerable: `python -m release.advisories BILL`.

The list is `advisories.toml`. It holds what a release must not contain any more, and replaces no scanner: the bill is
what a scanner reads.
"""

import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from release.errors import ReleaseError

FILE = Path(__file__).with_name("advisories.toml")
_FORM = re.compile(r"(?:\d+[:!])?([\d.]*)(.*)", re.DOTALL)
_BEFORE = re.compile(r"[-._]?(?:(?:a|b|c|cr|rc|m|pre|dev)[-._]?\d|alpha|beta|snapshot)", re.IGNORECASE)
"""What follows the numbers of a version before that of the numbers; not the letters of OpenSSL 1.1.1."""


def check(bill: Path) -> None:
    """Raise ReleaseError with all components of the bill that an advisory concerns."""
    found = list(concerned(json.loads(bill.read_text())["components"]))
    if found:
        raise ReleaseError(f"{bill.name} has vulnerable versions:\n" + "\n".join(found))


def concerned(components: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a line for each component and advisory that concerns it, or may where the component has no version."""
    advisories = tomllib.loads(FILE.read_text())["advisory"]
    for component in components:
        name, version = component["name"].lower(), component.get("version")
        for one in advisories:
            if name == one["name"] and (_is_between(one, version) if version else not one.get("unknown")):
                yield f"{name} {version or 'of an unknown version'}: {one['id']}, fixed in {one['fixed']}"


def _is_between(advisory: dict[str, Any], version: str) -> bool:
    is_since = _order(advisory["since"])[0] <= _order(version)[0]
    return is_since and _order(version) < _order(advisory["fixed"])


def _order(version: str) -> tuple[list[int], bool]:
    """Return a version's numbers and whether it is no pre-release, without an epoch, a local version and the like."""
    digits, rest = _FORM.fullmatch(version).groups()  # type: ignore[union-attr]  # any text has this form
    numbers = [int(number) for number in digits.split(".") if number]
    while numbers and not numbers[-1]:
        numbers.pop()
    return numbers, _BEFORE.match(rest) is None


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
