"""What is fuzzed: each target takes any bytes, and raises where a law is broken."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import h11
from aiocoap import Message, oscore  # type: ignore[import-untyped] # aiocoap carries no types
from aiocoap.error import UnparsableMessage  # type: ignore[import-untyped]

from agent.coap.message import MessageFormatError, read_options, read_query, split, write_options
from agent.delivery import Media
from agent.http.head import HEAD_BYTES_MAX, read_whole_post
from agent.mqtt.packets import Item, MqttError, Packets
from tests.agent.decode.test_fuzz import survives

PACKET_BYTES_MAX = 64


def decode_any(data: bytes) -> None:
    """Decode or refuse a body, and write the records of what is decoded."""
    survives(data[1:], list(Media)[data[0] % len(Media)] if data else Media.JSON)


def message(data: bytes) -> None:
    """Refuse a datagram, or read the options that aiocoap reads, and write them as they were."""
    if len(data) < 4 or data[0] & 0xC0 != 0x40:
        return
    try:
        _, raw, payload = split(data)
    except MessageFormatError:
        return
    options = read_options(raw)
    assert read_options(write_options(options)) == options
    try:
        theirs = Message.decode(data)
    except (UnparsableMessage, ValueError, UnicodeDecodeError):
        return  # the value of an option
    assert theirs.payload == payload
    assert sorted(int(one.number) for one in theirs.opt.option_list()) == [one.number for one in options]


def query(data: bytes) -> None:
    """Read or refuse a query."""
    try:
        read_query(data.decode(errors="replace").split("&"))
    except ValueError as error:
        assert 0 < len(str(error)) < 500  # noqa: PT017  # no test of pytest


def packets(data: bytes) -> None:
    """Read the same packets in one piece as in single bytes."""
    for properties in (False, True):
        assert _fed(data, len(data) or 1, properties) == _fed(data, 1, properties)


def _fed(data: bytes, piece: int, properties: bool) -> list[tuple[Any, ...]]:
    reader, items = Packets(PACKET_BYTES_MAX, properties=properties), list[Item]()
    try:
        for at in range(0, len(data), piece):
            items += reader.feed(data[at : at + piece])
    except MqttError:
        return []  # what came before it depends on the pieces
    return [
        (one,) if isinstance(one, bytes) else (one.topic, one.payload, one.size, one.message_id, one.fault)
        for one in items
    ]


def http(data: bytes) -> None:
    """Read no whole request where h11 reads another one."""
    post = read_whole_post(b"POST /api/v1/events HTTP/1.1\r\n" + data, "[::1]")
    if post is None:
        return
    server = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
    server.receive_data(b"POST /api/v1/events HTTP/1.1\r\n" + data)
    request = server.next_event()
    assert isinstance(request, h11.Request)
    assert sorted(request.headers) == sorted((name, value) for name, value in post.head.fields)
    body = b""
    while not isinstance(part := server.next_event(), h11.EndOfMessage):
        assert isinstance(part, h11.Data)
        body += part.data
    assert body == post.body
    assert server.trailing_data == (b"", False)


def oscore_option(data: bytes) -> None:
    """Read the option of OSCORE (RFC 8613 section 6.1), or get one of the errors that the agent expects of aiocoap."""
    try:
        received = Message.decode(data)
    except (UnparsableMessage, ValueError):
        return
    if received.opt.oscore is not None:
        try:
            oscore.verify_start(received)
        except (oscore.DecodeError, IndexError):
            return


TARGETS: Final[Mapping[str, Callable[[bytes], None]]] = {
    "decode": decode_any,
    "message": message,
    "query": query,
    "packets": packets,
    "http": http,
    "oscore": oscore_option,
}
