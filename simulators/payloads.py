"""The payloads of simulated sensors: their readings, and the formats that encode them.

Readings are coarse and change slowly, as real ones do: most are equal to an earlier one of the same sensor, so a
deduplication by content alone would lose most of them.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random

import cbor2

from contract.event import TYPE_DEFAULT, Event, Value
from simulators.wire import Request


class KnownBy(StrEnum):
    """Which field identifies the events of a sensor."""

    ID = "id"
    TIME = "time"
    NEITHER = "neither"
    """Only the transport proves a retransmission."""


class PayloadFormat(StrEnum):
    """The payload format of a sensor."""

    JSON = "json"
    CBOR = "cbor"
    SENML_JSON = "senml-json"
    SENML_CBOR = "senml-cbor"


CONTENT_FORMATS = {
    PayloadFormat.JSON: 50,
    PayloadFormat.CBOR: 60,
    PayloadFormat.SENML_JSON: 110,
    PayloadFormat.SENML_CBOR: 112,
}

# The labels of SenML in CBOR (RFC 8428 section 6).
_SENML_LABELS = {"bn": -2, "bt": -3, "n": 0, "u": 1, "v": 2, "vb": 4}
_PLAIN = {PayloadFormat.SENML_JSON: PayloadFormat.JSON, PayloadFormat.SENML_CBOR: PayloadFormat.CBOR}

_ALARM_EVERY = 12
_HISTORY_VALUES = 48
"""With large payloads: a body of about 200 bytes."""


def identified_by(event: Event) -> KnownBy:
    """Return which field identifies an event."""
    if event.id is not None:
        return KnownBy.ID
    return KnownBy.NEITHER if event.time is None else KnownBy.TIME


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """The properties of a sensor that never change."""

    device: str
    known_by: KnownBy
    form: PayloadFormat
    large_payloads: bool = False
    """Whether payloads are long enough for block-wise transfer."""
    counter_restarts_every: int = 0
    """Number of events after which the id counter starts again; 0: never."""
    id_repeated_every: int = 0
    """Every how many events an id is used for two different events; 0: never."""


def device_profile(
    index: int,
    known_by: Sequence[KnownBy] = tuple(KnownBy),
    forms: Sequence[PayloadFormat] = tuple(PayloadFormat),
) -> DeviceProfile:
    """Return the profile of the sensor with this index, so that all identifications occur with all formats."""
    return DeviceProfile(
        device_name(index), known_by[index % len(known_by)], forms[index // len(known_by) % len(forms)]
    )


SENSORS_MAX = 1 << 15
"""Device indexes below this belong to sensors, those above it to the Zigbee networks of the run."""
RUNS = 1 << 24
_INDEXES = 1 << 16
_FIRST_ADDRESS = 0x02005E0000000000


def address(index: int, run: int = 0) -> int:
    """Return the address of the device with this index: a locally administered EUI-64, which no real device has.

    Runs that share a table have different run numbers, and so no device in common.
    """
    return _FIRST_ADDRESS + run * _INDEXES + index


def is_simulated(address_: int) -> bool:
    """Whether an address is that of a device of any run."""
    return 0 <= address_ - _FIRST_ADDRESS < RUNS * _INDEXES


def device_name(index: int, run: int = 0) -> str:
    """Return the URN of the device with this index."""
    return f"urn:dev:mac:{address(index, run):016x}"


def devices_of(run: int) -> str:
    """Return the common prefix of the URNs of all devices of a run."""
    return device_name(0, run).removesuffix(f"{0:04x}")


class PayloadGenerator:
    """Generates the events of one sensor and encodes them in its format."""

    def __init__(self, profile: DeviceProfile, random: Random) -> None:
        self.profile = profile
        self._random = random
        self._half_degrees = random.randrange(36, 48)
        self._generated = 0
        self._count = 0
        self._time = 0

    def next_event(self, now: int, boot: int | None = None) -> Event:
        """Return the next event; `now` is the sensor's clock in milliseconds. No two events have the same time."""
        self._advance()
        self._time = max(self._time + 1, now)
        alarm = self._random.randrange(_ALARM_EVERY) == 0
        return Event(
            device=self.profile.device,
            type="alarm" if alarm and not self._senml else TYPE_DEFAULT,
            id=self._count if self.profile.known_by is KnownBy.ID else None,
            boot=boot if self.profile.known_by is KnownBy.ID else None,
            time=self._time if self.profile.known_by is KnownBy.TIME else None,
            data=self._data(alarm=alarm),
        )

    def request(self, *events: Event, nan: bool = False) -> Request:
        """Encode events in one request body; with `nan`, add the reading of a broken probe."""
        form = self.profile.form
        if len(events) > 1 and any(event.id is not None for event in events):
            form = _PLAIN.get(form, form)  # a SenML pack cannot carry ids
        query: tuple[str, ...] = ()
        content: object
        if form in _PLAIN:
            content = [record for event in events for record in _senml_records(event, form)]
            query = tuple(
                f"{name}={value}" for name in ("id", "boot") if (value := getattr(events[0], name)) is not None
            )
        else:
            content = [_named(event) for event in events] if len(events) > 1 or nan else _named(events[0])
            if nan and isinstance(content, list):
                content.append({**_named(events[-1]), "id": 0, "data": {"probe": math.nan}})
        if form in (PayloadFormat.JSON, PayloadFormat.SENML_JSON):
            return Request(json.dumps(content, separators=(",", ":")).encode(), CONTENT_FORMATS[form], query)
        return Request(cbor2.dumps(content), CONTENT_FORMATS[form], query)

    @property
    def _senml(self) -> bool:
        return self.profile.form in _PLAIN

    def _advance(self) -> None:
        """Advance the id counter, including its firmware bugs."""
        self._generated += 1
        repeated, restarts = self.profile.id_repeated_every, self.profile.counter_restarts_every
        if restarts and self._generated % restarts == 0:
            self._count = 1
        elif not (repeated and self._generated % repeated == 0):
            self._count += 1

    def _data(self, *, alarm: bool) -> dict[str, Value]:
        data: dict[str, Value] = (
            {"open": self._random.random() < 0.5} if alarm else {"temperature": self._temperature()}
        )
        if self.profile.id_repeated_every:
            data["number"] = self._generated  # two events with the same id always differ
        if self.profile.large_payloads and not self._senml:
            data["history"] = [self._random.randrange(1_000) for _ in range(_HISTORY_VALUES)]
        return data

    def _temperature(self) -> float:
        self._half_degrees = min(48, max(36, self._half_degrees + self._random.choice((-1, 0, 0, 1))))
        return self._half_degrees / 2


def _senml_records(event: Event, form: PayloadFormat) -> list[dict[str | int, Value]]:
    record: dict[str | int, Value] = {"bn": event.device + ":"}
    if event.time is not None:
        record["bt"] = event.time / 1000
    for name, value in (event.data or {}).items():
        record["n"] = name
        record["vb" if isinstance(value, bool) else "v"] = value
    if form is PayloadFormat.SENML_CBOR:
        record = {_SENML_LABELS[str(label)]: value for label, value in record.items()}
    return [record]


def _named(event: Event) -> dict[str, Value]:
    fields: dict[str, Value] = {"device": event.device}
    if event.type != TYPE_DEFAULT:
        fields["type"] = event.type
    for name in ("id", "boot", "time"):
        if (value := getattr(event, name)) is not None:
            fields[name] = value
    fields["data"] = event.data
    return fields
