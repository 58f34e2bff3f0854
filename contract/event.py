"""An event: what one device reports at one time, in the sensor's own words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

Value: TypeAlias = "bool | int | float | str | bytes | Sequence[Value] | Mapping[str, Value] | None"

TYPE_DEFAULT = "reading"
TYPE_RESERVED_PREFIX = "gateway."
DEVICE_RESERVED_PREFIX = "urn:oncegate:"

TIME_MIN = -62_135_596_800_000
"""0001-01-01T00:00:00Z in milliseconds: the first moment that RFC 3339 and every table can hold."""
TIME_MAX = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z in milliseconds."""


class Event(NamedTuple):
    """One event; what the sensor did not say is None (`data` of None and of {} are two things).

    A tuple: made for each event, it takes a third of a frozen dataclass's time.
    """

    device: str
    type: str = TYPE_DEFAULT
    id: int | str | None = None
    boot: int | str | None = None
    time: int | None = None
    """Milliseconds since 1970 UTC, only where the sensor itself gave an absolute time."""
    data: Mapping[str, Value] | None = None
    units: Mapping[str, str] | None = None
    """Not part of the identity."""
    offset_ms: int | None = None
    """Relative sensor time (RFC 8428 section 4.5.3), milliseconds; not part of the identity."""


@dataclass(frozen=True, slots=True)
class Label:
    """Where an event stands in its gateway's own count; never given to two events."""

    epoch: str
    sequence: int


def gateway_device(gateway: str) -> str:
    """Name the device under which a gateway speaks for itself."""
    return f"{DEVICE_RESERVED_PREFIX}gateway:{gateway}"
