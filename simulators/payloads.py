"""What a simulated sensor says: its readings, and the form in which it says them.

Readings are coarse and move slowly, as real ones do: most are equal to an earlier one of the same sensor, so that
whoever tells events apart by their content alone would lose the greater part.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random

import cbor2

from contract.event import TYPE_DEFAULT, Event, Value
from simulators.wire import Request


class Kind(StrEnum):
    """What a sensor gives its events to be known by."""

    ID = "id"
    TIME = "time"
    NEITHER = "neither"
    """The transport alone proves a retransmission."""


class Form(StrEnum):
    """The format that a sensor speaks."""

    JSON = "json"
    CBOR = "cbor"
    SENML_JSON = "senml-json"
    SENML_CBOR = "senml-cbor"


CONTENT_FORMATS = {Form.JSON: 50, Form.CBOR: 60, Form.SENML_JSON: 110, Form.SENML_CBOR: 112}

# The labels of SenML in CBOR (RFC 8428 section 6).
_SENML_LABELS = {"bn": -2, "bt": -3, "n": 0, "u": 1, "v": 2, "vb": 4}
_PLAIN = {Form.SENML_JSON: Form.JSON, Form.SENML_CBOR: Form.CBOR}

_ALARM_EVERY = 12
_HISTORY_VALUES = 48
"""Of a talkative sensor: a body of some 200 bytes."""


def kind_of(event: Event) -> Kind:
    """Return what an event is known by."""
    if event.id is not None:
        return Kind.ID
    return Kind.NEITHER if event.time is None else Kind.TIME


@dataclass(frozen=True, slots=True)
class Nature:
    """What stays the same over a sensor's life."""

    device: str
    kind: Kind
    form: Form
    talkative: bool = False
    """Whether it says so much at once that it takes blocks."""
    counter_restarts_every: int = 0
    """After so many events the counter begins again; 0: never."""
    id_repeated_every: int = 0
    """So often an id is given to two events that differ; 0: never."""


def nature(index: int, kinds: Sequence[Kind] = tuple(Kind), forms: Sequence[Form] = tuple(Form)) -> Nature:
    """Return the nature of the sensor of that number, so that all kinds speak all forms."""
    return Nature(device_name(index), kinds[index % len(kinds)], forms[index // len(kinds) % len(forms)])


SENSORS_MAX = 1 << 15
"""Numbers below this are those of sensors, the others of one run those of its Zigbee houses."""
RUNS = 1 << 24
_INDEXES = 1 << 16
_FIRST_ADDRESS = 0x02005E0000000000


def address(index: int, run: int = 0) -> int:
    """Return the address of the device of that number: an EUI-64 with the local bit set, which is nobody's.

    Runs whose table may hold other runs have numbers of their own, and so no device in common with them.
    """
    return _FIRST_ADDRESS + run * _INDEXES + index


def device_name(index: int, run: int = 0) -> str:
    """Name the device of that number."""
    return f"urn:dev:mac:{address(index, run):016x}"


def devices_of(run: int) -> str:
    """Return how the names of all devices of a run begin."""
    return device_name(0, run).removesuffix(f"{0:04x}")


class Voice:
    """Make the events of one sensor, and put them into its form."""

    def __init__(self, nature: Nature, random: Random) -> None:
        self.nature = nature
        self._random = random
        self._half_degrees = random.randrange(36, 48)
        self._told = 0
        self._count = 0
        self._time = 0

    def next_event(self, now: int, boot: int | None = None) -> Event:
        """Make the next event; `now` is the sensor's clock in milliseconds, of which no two events share one."""
        self._advance()
        self._time = max(self._time + 1, now)
        alarm = self._random.randrange(_ALARM_EVERY) == 0
        return Event(
            device=self.nature.device,
            type="alarm" if alarm and not self._senml else TYPE_DEFAULT,
            id=self._count if self.nature.kind is Kind.ID else None,
            boot=boot if self.nature.kind is Kind.ID else None,
            time=self._time if self.nature.kind is Kind.TIME else None,
            data=self._data(alarm=alarm),
        )

    def request(self, *events: Event, nan: bool = False) -> Request:
        """Put events into the sensor's form, in one body; with `nan`, a dead probe's reading beside them."""
        form = self.nature.form
        if len(events) > 1 and any(event.id is not None for event in events):
            form = _PLAIN.get(form, form)  # a pack of SenML has no place for ids
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
        if form in (Form.JSON, Form.SENML_JSON):
            return Request(json.dumps(content, separators=(",", ":")).encode(), CONTENT_FORMATS[form], query)
        return Request(cbor2.dumps(content), CONTENT_FORMATS[form], query)

    @property
    def _senml(self) -> bool:
        return self.nature.form in _PLAIN

    def _advance(self) -> None:
        """Count one event more, as well as the firmware can."""
        self._told += 1
        repeated, restarts = self.nature.id_repeated_every, self.nature.counter_restarts_every
        if restarts and self._told % restarts == 0:
            self._count = 1
        elif not (repeated and self._told % repeated == 0):
            self._count += 1

    def _data(self, *, alarm: bool) -> dict[str, Value]:
        data: dict[str, Value] = (
            {"open": self._random.random() < 0.5} if alarm else {"temperature": self._temperature()}
        )
        if self.nature.id_repeated_every:
            data["number"] = self._told  # so that two events of one id always differ
        if self.nature.talkative and not self._senml:
            data["history"] = [self._random.randrange(1_000) for _ in range(_HISTORY_VALUES)]
        return data

    def _temperature(self) -> float:
        self._half_degrees = min(48, max(36, self._half_degrees + self._random.choice((-1, 0, 0, 1))))
        return self._half_degrees / 2


def _senml_records(event: Event, form: Form) -> list[dict[str | int, Value]]:
    record: dict[str | int, Value] = {"bn": event.device + ":"}
    if event.time is not None:
        record["bt"] = event.time / 1000
    for name, value in (event.data or {}).items():
        record["n"] = name
        record["vb" if isinstance(value, bool) else "v"] = value
    if form is Form.SENML_CBOR:
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
