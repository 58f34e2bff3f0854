"""Tables that a job of another release has made: what they lack is added, and a column of another type is an error."""

from __future__ import annotations

from collections.abc import Mapping

from cloud.errors import StopError


def missing(table: str, present: Mapping[str, str], expected: Mapping[str, str]) -> list[str]:
    """Return the names of the columns that a table lacks; raise StopError where one has another type."""
    for name, kind in expected.items():
        if (found := present.get(name, kind)) != kind:
            raise StopError(
                f"table {table}: its column {name} has the type {found}, and this release writes {kind}. Nothing is "
                "written. Start the release that has made the table, or change the column's type back; or start with "
                "a new table and --read-again"
            )
    return [name for name in expected if name not in present]
