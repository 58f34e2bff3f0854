"""Reads publications of Zigbee2MQTT: the readings of a device, and fields that Zigbee2MQTT adds."""

import re
from datetime import datetime
from typing import Final

from agent.decode import json
from contract.event import TIME_MAX
from contract.values import Invalid

NOT_DATA: Final = frozenset({"linkquality", "last_seen", "update", "update_available", "device"})
"""Fields about the radio, Zigbee2MQTT or the firmware, which are no readings."""
RADIO: Final = "linkquality"
"""The one of them that is kept, in `ext`."""
EPOCH_MIN: Final = 946_684_800_000
"""2000-01-01 in milliseconds. A smaller number is an age, seconds, or the time of a clock that was never set, which
recurs after each start."""

_ISO_WITH_MILLISECONDS: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_IEEE_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]{16}")


def read(body: bytes) -> object:
    """Return a publication as the map of an event: `data`, and `ext`, `time` and `device` where it has them."""
    document = json.read(body)
    if not isinstance(document, dict):
        return Invalid("a publication of Zigbee2MQTT is not a map") if not isinstance(document, Invalid) else document
    entries: dict[str, object] = {"data": {key: value for key, value in document.items() if key not in NOT_DATA}}
    if document.get(RADIO) is not None:
        entries["ext"] = {RADIO: document[RADIO]}
    if (time := _time(document.get("last_seen"))) is not None:
        entries["time"] = time
    if (device := named_device(document)) is not None:
        entries["device"] = device
    return entries


def named_device(document: dict[str, object]) -> str | None:
    """Return the device that a publication names (Zigbee2MQTT: mqtt.include_device_information), or None."""
    information = document.get("device")
    return urn(information.get("ieeeAddr")) if isinstance(information, dict) else None


def urn(ieee_address: object) -> str | None:
    """Return an IEEE address (EUI-64) as a URN (RFC 9039); None for any other text."""
    if not isinstance(ieee_address, str) or not _IEEE_ADDRESS.fullmatch(ieee_address):
        return None
    return f"urn:dev:mac:{ieee_address[2:].lower()}"


def _time(last_seen: object) -> int | None:
    """Return Zigbee2MQTT's timestamp where it has milliseconds, which identify a redelivery, else None.

    These are `epoch` and `ISO_8601`. `ISO_8601_local` has seconds only, in which a device may publish two equal events;
    an age (`relative`) differs in each duplicate.
    """
    if isinstance(last_seen, str) and _ISO_WITH_MILLISECONDS.fullmatch(last_seen):
        try:
            stamp = datetime.fromisoformat(last_seen)
        except ValueError:
            return None
        last_seen = int(stamp.timestamp()) * 1000 + stamp.microsecond // 1000
    return last_seen if type(last_seen) is int and EPOCH_MIN <= last_seen <= TIME_MAX else None
