import unicodedata

import pytest

from agent.decode.decoded import EVENTS_MAX, REJECTED_BYTES_MAX, Undecodable, UnknownFormat
from agent.decode.delivery_body import BODY_BYTES_MAX
from agent.decode.event_map import DEVICE_CHARACTERS_MAX, ID_CHARACTERS_MAX, TYPE_CHARACTERS_MAX
from agent.delivery import Media
from contract.event import TIME_MAX, TIME_MIN, Event
from tests.agent.decode.deliveries import SENDER, deliver, deliver_cbor, deliver_json, only


def test_what_is_absent_or_null_is_none() -> None:
    absent = Event(SENDER, "reading")
    assert only(deliver_json({})) == absent
    assert only(deliver_json(dict.fromkeys(("device", "type", "id", "boot", "time", "data", "units")))) == absent
    assert only(deliver_json({"data": {}})).data == {}


@pytest.mark.parametrize(
    ("entries", "authenticated", "device"),
    [
        ({"device": "own"}, "proven", "own"),
        ({"device": "own"}, None, "own"),
        ({}, "proven", "proven"),
        ({"device": None}, "proven", "proven"),
        ({}, None, SENDER),
        ({"device": "e\u0301"}, None, "é"),
    ],
)
def test_device_is_its_own_word_or_the_proven_identity_or_the_sender(
    entries: dict[str, object], authenticated: str | None, device: str
) -> None:
    assert only(deliver_json(entries, authenticated=authenticated)).device == device


@pytest.mark.parametrize("field", ["id", "boot", "time"])
def test_an_integral_float_is_the_integer(field: str) -> None:
    value = getattr(only(deliver_json({field: 17.0})), field)
    assert value == 17
    assert type(value) is int


@pytest.mark.guarantee(6)
@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ({"id": 1.5}, "id is not"),
        ({"id": True}, "id is not"),
        ({"id": [1]}, "id is not"),
        ({"id": {"$bytes": "AA"}}, "id is not"),
        ({"id": ""}, "id is empty"),
        ({"id": "x" * (ID_CHARACTERS_MAX + 1)}, "id is empty or longer"),
        ({"id": 1 << 64}, "id is outside"),
        ({"id": -(1 << 64)}, "id is outside"),
        ({"id": -(1 << 63) - 1}, "id is outside"),
        ({"id": float("nan")}, "NaN"),
        ({"boot": 1.5}, "boot is not"),
        ({"boot": 1e30}, "boot is outside"),
        ({"boot": "a\nb"}, "control character"),
        ({"time": 1.5}, "time is not integer milliseconds"),
        ({"time": "2026-01-01T00:00:00Z"}, "time is not integer milliseconds"),
        ({"time": False}, "time is not"),
        ({"time": TIME_MAX + 1}, "time is outside"),
        ({"time": TIME_MIN - 1}, "time is outside"),
        ({"time": float("inf")}, "Infinity"),
        ({"type": 1}, "type is not text"),
        ({"type": ""}, "type is empty"),
        ({"type": "x" * (TYPE_CHARACTERS_MAX + 1)}, "type is empty or longer"),
        ({"type": "gateway.gap"}, "gateway's own"),
        ({"device": 1}, "device is not text"),
        ({"device": ""}, "device is empty"),
        ({"device": "x" * (DEVICE_CHARACTERS_MAX + 1)}, "device is empty or longer"),
        ({"device": "a\0"}, "control character"),
        ({"device": "\ud800"}, "surrogate"),
        ({"device": "urn:oncegate:gateway:1"}, "gateways themselves"),
        ({"device": "URN:OnceGate:gateway:1"}, "gateways themselves"),
        ({"data": [1]}, "data is not a map"),
        ({"data": "x"}, "data is not a map"),
        ({"units": {"x": 1}}, "unit is not text"),
        ({"units": {"x": "\ud800"}}, "surrogate"),
        ({"units": {"x": "m" * 65}}, "unit is not text of at most"),
        ({"units": ["m"]}, "units are not a map"),
        ({"temperature": 21}, "unknown field 'temperature'"),
        ({"offset_ms": 1}, "unknown field 'offset_ms'"),
        ([], "not a map"),
        (1, "not a map"),
        (None, "not a map"),
    ],
)
def test_wrong_event_is_rejected_beside_valid_ones(entries: object, reason: str) -> None:
    decoded = deliver_json([{"id": 1}, entries, {"id": 2}])
    assert [event.id for event in decoded.events] == [1, 2]
    [rejected] = decoded.rejected
    assert reason in rejected.reason


@pytest.mark.parametrize(
    "entries",
    [
        {"id": "x" * ID_CHARACTERS_MAX, "type": "x" * TYPE_CHARACTERS_MAX, "device": "x" * DEVICE_CHARACTERS_MAX},
        {"id": (1 << 64) - 1, "boot": -(1 << 63)},
        {"time": TIME_MIN},
        {"time": TIME_MAX},
        {"type": "gateway"},
        {"device": "urn:oncegated:1"},
        {"units": {"x": None}},
    ],
)
def test_the_last_value_within_each_bound_is_taken(entries: dict[str, object]) -> None:
    event = only(deliver_json(entries))
    assert all(getattr(event, name) == entry for name, entry in entries.items() if name != "units")


def test_names_are_in_nfc() -> None:
    event = only(deliver_json(dict.fromkeys(("device", "type", "id", "boot"), "Ku\u0308che")))
    assert {event.device, event.type, event.id, event.boot} == {unicodedata.normalize("NFC", "Ku\u0308che")}


@pytest.mark.parametrize(
    ("entries", "authenticated", "device"),
    [
        ({"device": "own", "id": 1.5}, None, "own"),
        ({"device": 7, "id": 1.5}, None, SENDER),
        ({"device": "x" * 1000}, "proven", "proven"),
        ({"id": 1.5}, "proven", "proven"),
        ([], None, SENDER),
    ],
)
def test_rejected_event_names_the_device_as_well_as_it_can(
    entries: object, authenticated: str | None, device: str
) -> None:
    [rejected] = deliver_json([entries], authenticated=authenticated).rejected
    assert rejected.device == device


def test_of_a_long_rejected_event_the_beginning_is_kept() -> None:
    [rejected] = deliver_json([{"id": 1.5, "data": {"x": "y" * 10_000}}]).rejected
    assert len(rejected.raw) == REJECTED_BYTES_MAX
    assert rejected.raw.startswith(b'{"id": 1.5')


@pytest.mark.parametrize("count", [0, EVENTS_MAX])
def test_events_keep_their_order(count: int) -> None:
    decoded = deliver_cbor([{"id": number} for number in range(count)])
    assert [event.id for event in decoded.events] == list(range(count))
    assert decoded.rejected == ()


def test_too_many_events_are_undecodable() -> None:
    with pytest.raises(Undecodable, match="more than"):
        deliver_cbor([{}] * (EVENTS_MAX + 1))


@pytest.mark.parametrize("media", list(Media))
@pytest.mark.parametrize(
    ("body", "reason"), [(b"", "^the body is empty$"), (b" " * (BODY_BYTES_MAX + 1), "^the body is longer than")]
)
def test_an_empty_or_endless_body_is_undecodable(body: bytes, reason: str, media: Media) -> None:
    with pytest.raises(Undecodable, match=reason):
        deliver(body, media)


def test_a_format_that_nobody_knows_is_said_to_be_so() -> None:
    with pytest.raises(UnknownFormat, match="JSON"):
        deliver(b"{}", media=None)
