"""Query parameters: fields of an event that a CoAP sensor with little space in its payload puts into the Uri-Query."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from agent.decode.decoded import Undecodable

PARAMETER_CHARACTERS_MAX: Final = 256


@dataclass(frozen=True, slots=True)
class QueryParameters:
    """Fields that the query sets in a body's events; None where it has no such parameter."""

    device: str | None = None
    id: int | str | None = None
    boot: int | str | None = None
    time: int | str | None = None
    type: str | None = None

    @property
    def single(self) -> bool:
        """Whether a parameter can hold for one event only."""
        return self.id is not None or self.boot is not None or self.time is not None


NO_PARAMETERS: Final = QueryParameters()


def read_query(query: Mapping[str, str]) -> QueryParameters:
    """Read d, id, boot, t and type.

    Raise Undecodable on any other parameter: to pass over a misspelt one would lose an event's identity.
    """
    for name, value in query.items():
        if name not in ("d", "id", "boot", "t", "type"):
            raise Undecodable(f"query: unknown parameter {name[:PARAMETER_CHARACTERS_MAX]!r}")
        if not 0 < len(value) <= PARAMETER_CHARACTERS_MAX:
            raise Undecodable(f"query: {name} is empty or longer than {PARAMETER_CHARACTERS_MAX} characters")
    return QueryParameters(
        device=query.get("d"),
        id=_number_or_text(query.get("id")),
        boot=_number_or_text(query.get("boot")),
        time=_number_or_text(query.get("t")),
        type=query.get("type"),
    )


def _number_or_text(value: str | None) -> int | str | None:
    """Read decimal digits without a leading zero as an integer."""
    if value is None or not (value.isascii() and value.isdecimal()) or (value[0] == "0" and value != "0"):
        return value
    return int(value)
