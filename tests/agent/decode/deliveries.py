"""Short constructors of deliveries."""

import json
from collections.abc import Mapping

import cbor2

from agent.decode.decoded import Decoded
from agent.decode.delivery_body import decode
from agent.delivery import Delivery, Media
from contract.event import Event

SENDER = "coap://[fe80::1]"


def deliver(
    body: bytes,
    media: Media | None = Media.JSON,
    query: Mapping[str, str] | None = None,
    authenticated: str | None = None,
) -> Decoded:
    return decode(Delivery(body, media, "coap", SENDER, authenticated=authenticated, query=query or {}))


def deliver_json(document: object, query: Mapping[str, str] | None = None, authenticated: str | None = None) -> Decoded:
    return deliver(json.dumps(document).encode(), Media.JSON, query, authenticated)


def deliver_senml(pack: object, query: Mapping[str, str] | None = None, authenticated: str | None = None) -> Decoded:
    return deliver(json.dumps(pack).encode(), Media.SENML_JSON, query, authenticated)


def deliver_cbor(document: object) -> Decoded:
    return deliver(cbor2.dumps(document), Media.CBOR)


def only(decoded: Decoded) -> Event:
    assert not decoded.rejected
    [event] = decoded.events
    return event


def reason_of(decoded: Decoded) -> str:
    assert not decoded.events
    [rejected] = decoded.rejected
    return rejected.reason
