import json
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from hypothesis import given

from agent.decode.delivery_body import decode
from agent.delivery import Delivery, Media
from contract import cbor
from contract.event import Event, Label, Value
from contract.fingerprint import fingerprint, identity, needs_label
from tests.contract import forms
from tests.contract.strategies import events, flat_events, randoms


@dataclass(frozen=True)
class Vector:
    note: str
    entries: dict[str, Value]
    """The event's map, as a sensor would send it."""
    fields: tuple[str, ...]
    cbor: str
    fingerprint: str

    def __str__(self) -> str:
        return self.note

    @property
    def event(self) -> Event:
        fields = {name: value for name, value in self.entries.items() if name not in ("epoch", "sequence")}
        return Event(**fields)  # type: ignore[arg-type]  # the names are an event's

    @property
    def label(self) -> Label | None:
        if "epoch" not in self.entries:
            return None
        return Label(str(self.entries["epoch"]), int(str(self.entries["sequence"])))


def _bytes(entries: dict[str, Value]) -> Value:
    return bytes.fromhex(str(entries["bytes_hex"])) if entries.keys() == {"bytes_hex"} else entries


def _load() -> list[Vector]:
    text = Path(__file__).with_name("fingerprint-vectors.json").read_text()
    vectors = json.loads(text, object_hook=_bytes)["vectors"]
    return [Vector(v["note"], v["event"], tuple(v["fields"]), v["cbor"], v["fingerprint"]) for v in vectors]


VECTORS = _load()


LABEL = Label("00c0ffee00c0ffee", 42)


@pytest.mark.guarantee(2)
@pytest.mark.parametrize("vector", VECTORS, ids=str)
def test_vector_has_its_bytes_and_its_fingerprint(vector: Vector) -> None:
    fields = tuple(name for name in vector.fields if name not in ("epoch", "sequence"))
    assert cbor.encode_map(identity(vector.event, fields, vector.label)).hex() == vector.cbor
    assert fingerprint(vector.event, fields, vector.label).hex() == vector.fingerprint


@pytest.mark.guarantee(2)
@given(events, randoms)
def test_json_and_any_cbor_of_an_event_have_one_fingerprint(event: Event, random: Random) -> None:
    cbor_body = forms.cbor_form(forms.entries_of(event), random)
    fingerprints = {_of(event), _decoded(forms.json_form(event, random), Media.JSON), _decoded(cbor_body, Media.CBOR)}
    assert len(fingerprints) == 1


@pytest.mark.guarantee(2)
@given(flat_events, randoms)
def test_senml_forms_of_an_event_have_the_same_fingerprint(event: Event, random: Random) -> None:
    in_json = _decoded(forms.senml_json_form(event, random), Media.SENML_JSON)
    in_cbor = _decoded(forms.senml_cbor_form(event, random), Media.SENML_CBOR)
    assert in_json == in_cbor == _of(event)


@given(events)
def test_a_label_joins_the_identity_only_where_it_is_given(event: Event) -> None:
    assert fingerprint(event, label=LABEL) != fingerprint(event, label=Label(LABEL.epoch, 43))
    if needs_label(event):
        with pytest.raises(ValueError, match="label"):
            fingerprint(event)
    else:
        assert fingerprint(event) != fingerprint(event, label=LABEL)


def _of(event: Event) -> bytes:
    return fingerprint(event, label=LABEL if needs_label(event) else None)


def _decoded(body: bytes, media: Media) -> bytes:
    decoded = decode(Delivery(body, media, "coap", "coap://[fe80::1]"))
    assert not decoded.rejected
    [event] = decoded.events
    return _of(event)
