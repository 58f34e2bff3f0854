"""What a simulated sensor says: its readings, and the form in which it says them.

Readings are coarse and move slowly, as real ones do: most are equal to an earlier one of the same sensor, so that
whoever tells events apart by their content alone would lose the greater part.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from random import Random

import cbor2

from contract.event import TYPE_DEFAULT, Event, Value
from simulators.coap import Request


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

_ALARM_EVERY = 12


def kind_of(event: Event) -> Kind:
    """Tell what an event is known by."""
    if event.id is not None:
        return Kind.ID
    return Kind.NEITHER if event.time is None else Kind.TIME


@dataclass(frozen=True, slots=True)
class Nature:
    """What stays the same over a sensor's life."""

    device: str
    kind: Kind
    form: Form


def nature(index: int) -> Nature:
    """Give the sensor of that number its nature, so that all kinds speak all forms."""
    kinds, forms = list(Kind), list(Form)
    # An EUI-64 with the local bit set: it is nobody's.
    device = f"urn:dev:mac:02005e{index:010x}"
    return Nature(device, kinds[index % len(kinds)], forms[index // len(kinds) % len(forms)])


class Voice:
    """Make the events of one sensor, and put them into its form."""

    def __init__(self, nature: Nature, random: Random) -> None:
        self.nature = nature
        self._random = random
        self._half_degrees = random.randrange(36, 48)
        self._count = 0
        self._time = 0

    def next_event(self, now: int) -> Event:
        """Make the next event; `now` is the sensor's clock in milliseconds, of which no two events share one."""
        self._count += 1
        self._time = max(self._time + 1, now)
        alarm = self._random.randrange(_ALARM_EVERY) == 0
        return Event(
            device=self.nature.device,
            type="alarm" if alarm and not self._senml else TYPE_DEFAULT,
            id=self._count if self.nature.kind is Kind.ID else None,
            time=self._time if self.nature.kind is Kind.TIME else None,
            data={"open": self._random.random() < 0.5} if alarm else {"temperature": self._temperature()},
        )

    def request(self, event: Event) -> Request:
        """Put an event into the sensor's form."""
        form = self.nature.form
        content: object = self._senml_pack(event) if self._senml else _named(event)
        query = (f"id={event.id}",) if self._senml and event.id is not None else ()
        if form in (Form.JSON, Form.SENML_JSON):
            return Request(json.dumps(content, separators=(",", ":")).encode(), CONTENT_FORMATS[form], query)
        return Request(cbor2.dumps(content), CONTENT_FORMATS[form], query)

    @property
    def _senml(self) -> bool:
        return self.nature.form in (Form.SENML_JSON, Form.SENML_CBOR)

    def _temperature(self) -> float:
        self._half_degrees = min(48, max(36, self._half_degrees + self._random.choice((-1, 0, 0, 1))))
        return self._half_degrees / 2

    def _senml_pack(self, event: Event) -> list[dict[str | int, Value]]:
        record: dict[str | int, Value] = {"bn": event.device + ":"}
        if event.time is not None:
            record["bt"] = event.time / 1000
        for name, value in (event.data or {}).items():
            record["n"] = name
            record["vb" if isinstance(value, bool) else "v"] = value
        if self.nature.form is Form.SENML_CBOR:
            record = {_SENML_LABELS[str(label)]: value for label, value in record.items()}
        return [record]


def _named(event: Event) -> dict[str, Value]:
    fields: dict[str, Value] = {"device": event.device}
    if event.type != TYPE_DEFAULT:
        fields["type"] = event.type
    if event.id is not None:
        fields["id"] = event.id
    if event.time is not None:
        fields["time"] = event.time
    fields["data"] = event.data
    return fields
