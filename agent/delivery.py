"""What a way in hands to the pipeline, and what it gets back for the sensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

VIAS = ("coap", "zigbee2mqtt", "mqtt", "http")
"""The ways in, by the names that records, metrics and the log use."""


class Media(Enum):
    """The formats that the agent decodes; the values are CoAP content formats (RFC 7252, RFC 8428), or below zero."""

    JSON = 50
    CBOR = 60
    SENML_JSON = 110
    SENML_CBOR = 112
    ZIGBEE2MQTT = -1
    """What Zigbee2MQTT publishes of a device; it has no content format, and no way in but MQTT takes it."""


_NOTHING_SAID: Mapping[str, str] = MappingProxyType({})


class Delivery(NamedTuple):
    """Raw bytes from one sender, as one way in received them. A tuple, as all that is made for each event."""

    body: bytes
    media: Media | None
    """None: the sender named a format that we do not know."""
    via: str
    """`coap`, `zigbee2mqtt`, `mqtt`, `http` or `gateway`."""
    sender: str
    """The sender's address as a URI, such as `coap://[fe80::1]`: the device of last resort."""
    authenticated: str | None = None
    """The identity that the transport has proven, such as an OSCORE context's or a token's device."""
    query: Mapping[str, str] = _NOTHING_SAID
    """What stood beside the body: d, id, boot, t, type (the Uri-Query of a CoAP sensor with no room in its payload)."""
    retransmission_key: bytes | None = None
    """16 bytes over all that the transport repeats in a retransmission; None where it proves nothing.

    CoAP: endpoint, Message ID, Token and datagram.
    """
    relay: bool = False
    """Whether the authenticated sender may speak for other devices than itself."""


class Status(Enum):
    """What became of a delivery; each way in has its own words for these (design: the table of bad input)."""

    DURABLE = "durable"
    UNDECODABLE = "undecodable"
    UNKNOWN_FORMAT = "unknown format"
    TOO_LARGE = "too large"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    UNAVAILABLE = "unavailable"


class Answer(NamedTuple):
    """The outcome for the sender. With `Status.DURABLE` everything accepted survives a power cut."""

    status: Status
    accepted: int = 0
    duplicates: int = 0
    rejected: int = 0
    fingerprints: tuple[bytes, ...] = ()
    """Of all valid events in the order of the body, duplicates among them."""
    reason: str = ""
    """For people; empty where all is well."""
    retry_seconds: int = 0
    """With `Status.UNAVAILABLE`: when it is worth trying again."""


Respond = Callable[[Answer], None]
"""Called exactly once, in the event loop's thread, maybe before `receive` returns."""

Receive = Callable[[Delivery, Respond], None]
"""The pipeline's entrance, called in the event loop's thread; never raises, never blocks."""

Record = Callable[[Delivery, str, Respond], None]
"""The pipeline's entrance for what can be no event, with the reason, where no one can be told; as `Receive` else."""
