"""Messages of Zigbee2MQTT, read as events."""

import json
from typing import Any

import pytest

from agent.decode.decoded import Undecodable
from agent.decode.delivery_body import decode
from agent.decode.zigbee2mqtt import urn
from agent.delivery import Delivery, Media
from contract.event import Event
from contract.fingerprint import fingerprint
from simulators.sensors.zigbee_network import models

DEVICE = "urn:dev:mac:00158d0001234567"
MOMENT = 1_763_706_012_345
PUBLICATIONS: list[dict[str, Any]] = models()
"""Messages of the real converters for device models of many makers (written by zigbee2mqtt-publications.js)."""


def _decode(payload: object) -> Event:
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    decoded = decode(Delivery(body, Media.ZIGBEE2MQTT, "zigbee2mqtt", DEVICE))
    assert (len(decoded.events), decoded.rejected) == (1, ())
    return decoded.events[0]


@pytest.mark.parametrize("quality", [None, "\ud800", [[]] * 5_000])
def test_a_quality_that_is_no_data_refuses_nothing(quality: object) -> None:
    event = _decode({"temperature": 21.5, "linkquality": quality})
    assert (event.data, event.ext or None) == ({"temperature": 21.5}, None)


@pytest.mark.guarantee(2)
@pytest.mark.parametrize(
    ("last_seen", "time"),
    [
        (MOMENT, MOMENT),
        ("2025-11-21T06:20:12.345Z", MOMENT),
        ("2025-11-21T07:20:12+01:00", None),
        ("2025-11-21T06:20:12Z", None),
        ("2025-13-21T06:20:12.345Z", None),
        ("2000-01-01T00:00:00.000Z", 946_684_800_000),
        ("1999-12-31T23:59:59.999Z", None),
        ("1970-01-01T00:00:05.123Z", None),
        ("1969-12-31T23:59:59.500Z", None),
        ("0001-01-01T00:00:00.001Z", None),
        ("9999-12-30T23:59:59.999Z", 253_402_214_399_999),
        (946_684_800_000, 946_684_800_000),
        (5_123, None),
        ("2 minutes ago", None),
        (MOMENT // 1000, None),
        (1 << 60, None),
        (float(MOMENT) + 0.5, None),
        (True, None),
        (None, None),
        ({}, None),
    ],
)
def test_last_seen_is_the_time_where_it_has_milliseconds(last_seen: object, time: int | None) -> None:
    assert _decode({"state": "ON", "last_seen": last_seen}).time == time


def test_a_publication_that_names_its_device_goes_before_the_list() -> None:
    event = _decode({"contact": True, "device": {"ieeeAddr": "0x00158D00089ABCDE", "friendlyName": "door"}})
    assert (event.device, event.data) == ("urn:dev:mac:00158d00089abcde", {"contact": True})


@pytest.mark.parametrize("address", ["00158d0001234567", "0x00158d000123456", "0x00158d000123456g", 5, None])
def test_only_an_ieee_address_becomes_a_urn(address: object) -> None:
    assert urn(address) is None


@pytest.mark.parametrize("body", [b"ON", b"", b"{"])
def test_a_body_that_is_no_json_is_undecodable(body: bytes) -> None:
    with pytest.raises(Undecodable):
        decode(Delivery(body, Media.ZIGBEE2MQTT, "zigbee2mqtt", DEVICE))


@pytest.mark.parametrize("body", [b"[]", b"21", b'{"a":1,"a":2}', b'{"a":NaN}'])
def test_json_that_is_no_publication_is_rejected_with_a_reason(body: bytes) -> None:
    decoded = decode(Delivery(body, Media.ZIGBEE2MQTT, "zigbee2mqtt", DEVICE))
    assert (decoded.events, [reject.raw for reject in decoded.rejected]) == ((), [body])
    assert decoded.rejected[0].reason


@pytest.mark.guarantee(2)
@pytest.mark.parametrize("publication", PUBLICATIONS, ids=lambda publication: publication["model"])
def test_what_real_converters_publish_is_an_event(publication: dict[str, Any]) -> None:
    published = publication["published"]
    event = _decode(published)
    assert event.time == published["last_seen"]
    assert event.data == {key: value for key, value in published.items() if key not in ("linkquality", "last_seen")}
    again = _decode({**published, "linkquality": 7, "update": {"state": "available"}, "update_available": True})
    assert (fingerprint(again), again.ext) == (fingerprint(event), {"linkquality": 7})
