"""Tables that a job of another release has made: what they lack is added, and a column of another type is an error."""

from collections.abc import Mapping

from cloud.errors import StopError

_OF_RELEASE = (
    "this release",
    "Start the release that has made the table, or change its type back; or start with a new table and --read-again",
)
OF_TRANSFORM = "the transform", "Give the transform's column another name, or cast it to the type of the table's"
"""Who writes the columns, and what resolves another type."""


def missing(
    table: str, present: Mapping[str, str], expected: Mapping[str, str], by: tuple[str, str] = _OF_RELEASE
) -> list[str]:
    """Return the names of the columns that a table lacks; raise StopError where one has another type."""
    writer, way_on = by
    for name, kind in expected.items():
        if (found := present.get(name, kind)) != kind:
            raise StopError(
                f"table {table}: its column {name} has the type {found}, and {writer} writes {kind}. Nothing is "
                f"written. {way_on}"
            )
    return [name for name in expected if name not in present]
