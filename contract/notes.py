"""Notes that one release keeps for later starts, and that an older or a newer release may read."""

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


def read_note(kind: type[T], entries: Mapping[str, Any]) -> T:
    """Return a note without the entries that are not known here; missing ones have the defaults of `kind`.

    Raise TypeError where one without a default is missing.
    """
    return kind(**{field.name: entries[field.name] for field in fields(kind) if field.name in entries})
