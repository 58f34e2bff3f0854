"""An event: what one device reports at one time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, final

Value: TypeAlias = "bool | int | float | str | bytes | Sequence[Value] | Mapping[str, Value] | None"

TYPE_DEFAULT: Final = "reading"
TYPE_RESERVED_PREFIX: Final = "gateway."
DEVICE_RESERVED_PREFIX: Final = "urn:oncegate:"

TIME_MIN: Final = -62_135_424_000_000
"""0001-01-03T00:00:00Z in milliseconds: readers in any time zone have it, as Python, which looks a day back, too."""
TIME_MAX: Final = 253_402_214_399_999
"""9999-12-30T23:59:59.999Z in milliseconds."""


@final
@dataclass(slots=True, init=False)
class Event:
    """One event; a field that the sensor did not send is None (an absent `data` differs from an empty one).

    Its `__init__` is written, since a generated one is slower where the module is compiled (decision 66).
    """

    device: str
    type: str
    id: int | str | None
    boot: int | str | None
    time: int | None
    """Milliseconds since 1970 UTC; only where the sensor itself sent an absolute time."""
    data: Mapping[str, Value] | None
    units: Mapping[str, str] | None
    """Not part of the identity."""
    offset_ms: int | None
    """Relative sensor time (RFC 8428 section 4.5.3), milliseconds; not part of the identity."""
    ext: Mapping[str, Value] | None
    """What is known beyond the sensor's own words, such as the radio's signal strength; not part of the identity."""

    def __init__(  # noqa: PLR0913, PLR0917  # its fields
        self,
        device: str,
        type: str = TYPE_DEFAULT,  # noqa: A002  # the fields' names
        id: int | str | None = None,  # noqa: A002
        boot: int | str | None = None,
        time: int | None = None,
        data: Mapping[str, Value] | None = None,
        units: Mapping[str, str] | None = None,
        offset_ms: int | None = None,
        ext: Mapping[str, Value] | None = None,
    ) -> None:
        self.device = device
        self.type = type
        self.id = id
        self.boot = boot
        self.time = time
        self.data = data
        self.units = units
        self.offset_ms = offset_ms
        self.ext = ext


@final
@dataclass(slots=True, init=False, unsafe_hash=True)
class Label:
    """An event's place in its gateway's count; no two events of a gateway have the same. Nothing changes it."""

    epoch: str
    sequence: int

    def __init__(self, epoch: str, sequence: int) -> None:
        self.epoch = epoch
        self.sequence = sequence


def gateway_device(gateway: str) -> str:
    """Return the device of a gateway's own events."""
    return f"{DEVICE_RESERVED_PREFIX}gateway:{gateway}"
