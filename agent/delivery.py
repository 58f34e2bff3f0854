"""The pipeline's input and output: a delivery, and the answer for its sender."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final, final

from agent.mappings.mapping import EventMapping


class Media(Enum):
    """The formats that the agent decodes; the values are CoAP content formats (RFC 7252, RFC 8428), or below zero."""

    JSON = 50
    CBOR = 60
    SENML_JSON = 110
    SENML_CBOR = 112
    ZIGBEE2MQTT = -1
    """Zigbee2MQTT's messages of devices; without a content format, and accepted over MQTT only."""


@final
@dataclass(frozen=True, slots=True)
class ForeignFormat:
    """A payload in another program's format, which a mapping turns into events."""

    mapping: EventMapping
    topic: list[str]
    """The levels of the MQTT topic; empty over HTTP."""
    headers: Mapping[str, str]
    """The fields of the HTTP request, by their names in lower case; empty over MQTT."""


_NO_QUERY: Final[Mapping[str, str]] = MappingProxyType({})


@final
@dataclass(slots=True, init=False)
class Delivery:
    """Raw bytes from one sender; its `__init__` is written out, as for all values created for each event."""

    body: bytes
    media: Media | ForeignFormat | None
    """None where the sender named an unknown format."""
    via: str
    """The protocol, as `agent.config.ways` names it."""
    sender: str
    """The sender's address as a URI, such as `coap://[fe80::1]`: the device of last resort."""
    authenticated: str | None
    """The identity that the transport has proven, such as an OSCORE context's or a token's device."""
    query: Mapping[str, str]
    """The values beside the body: d, id, boot, t, type (the Uri-Query of a CoAP sensor with a small payload)."""
    retransmission_key: bytes | None
    """16 bytes over all that the transport repeats in a retransmission; None where that identifies nothing.

    CoAP: endpoint, Message ID, Token and datagram.
    """
    relay: bool
    """Whether the authenticated sender may send events of other devices."""

    def __init__(  # noqa: PLR0913, PLR0917  # its fields
        self,
        body: bytes,
        media: Media | ForeignFormat | None,
        via: str,
        sender: str,
        authenticated: str | None = None,
        query: Mapping[str, str] = _NO_QUERY,
        retransmission_key: bytes | None = None,
        relay: bool = False,
    ) -> None:
        self.body = body
        self.media = media
        self.via = via
        self.sender = sender
        self.authenticated = authenticated
        self.query = query
        self.retransmission_key = retransmission_key
        self.relay = relay


class Status(Enum):
    """The outcome of a delivery; each protocol maps these to its own codes."""

    DURABLE = "durable"
    UNDECODABLE = "undecodable"
    UNKNOWN_FORMAT = "unknown format"
    TOO_LARGE = "too large"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    TOO_MANY = "too many events"
    """More than the sender's or a device's share (`agent.admission`)."""
    NOT_FOUND = "not found"
    """A path or a method that takes no events."""
    UNAVAILABLE = "unavailable"


TEMPORARY: Final = (Status.UNAVAILABLE, Status.TOO_MANY)
"""The same delivery may be taken later."""


@final
@dataclass(slots=True, init=False)
class Answer:
    """The answer for the sender. With `Status.DURABLE` everything accepted survives a power cut."""

    status: Status
    accepted: int
    duplicates: int
    rejected: int
    fingerprints: tuple[bytes, ...]
    """Of all valid events in the order of the body, including duplicates."""
    reason: str
    """For people; with `Status.DURABLE` empty, unless all of it was recorded as rejected."""
    retry_seconds: int
    """With `Status.UNAVAILABLE` and `Status.TOO_MANY`: after how many seconds to try again."""

    def __init__(
        self,
        status: Status,
        accepted: int = 0,
        duplicates: int = 0,
        rejected: int = 0,
        fingerprints: tuple[bytes, ...] = (),
        reason: str = "",
        retry_seconds: int = 0,
    ) -> None:
        self.status = status
        self.accepted = accepted
        self.duplicates = duplicates
        self.rejected = rejected
        self.fingerprints = fingerprints
        self.reason = reason
        self.retry_seconds = retry_seconds


Respond = Callable[[Answer], None]
"""Called exactly once, in the event loop's thread, possibly before `receive` returns."""

Receive = Callable[[Delivery, Respond], None]
"""The pipeline's entry point, called in the event loop's thread; never raises, never blocks."""

Record = Callable[[Delivery, str, Respond], None]
"""The pipeline's entry point for a delivery that is no event, with the reason; otherwise as `Receive`."""

Refuse = Callable[[str, str, Answer], None]
"""The pipeline's entry point for a request that its server refuses before it is a delivery: by `via` and sender."""


def refuse_uncounted(_via: str, _sender: str, _answer: Answer) -> None:
    """Count nothing, for a server without a pipeline."""
