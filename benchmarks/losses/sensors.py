"""The sensors of the comparison: each sends an event until it is acknowledged, over four protocols."""

import http.client
import socket
from typing import BinaryIO

from agent.cli.sensor import senders
from benchmarks.agent.loads import length

ATTEMPT_SECONDS = 2.0
JSON = 50
"""CoAP's content format of JSON."""


def body(number: int) -> bytes:
    """Return the event of a number, as JSON; its temperature is the number, so that every station can be counted."""
    return b'{"device":"urn:x:%d","id":%d,"data":{"temperature":%d}}' % (number % 20, number, number)


def coap(address: tuple[str, int], number: int) -> bool:
    """Post an event; return whether it was acknowledged."""
    request = senders.Request(senders.post(body(number), JSON))
    reply = request.exchange(senders.Target(*address), iter([ATTEMPT_SECONDS]), lambda _: None)
    return reply is not None and reply.code.dotted == "2.04"


def post(address: tuple[str, int], path: str, number: int) -> bool:
    """Post an event over HTTP; return whether it was acknowledged."""
    connection = http.client.HTTPConnection(*address, timeout=ATTEMPT_SECONDS)
    try:
        connection.request("POST", path, body(number), {"Content-Type": "application/json"})
        return connection.getresponse().status == 200
    finally:
        connection.close()


def mqtt(address: tuple[str, int], number: int, qos: int, again: int, *, cut: bool) -> bool:
    """Publish an event in the sensor's persistent session; return whether the handshake was completed.

    A repeated message has its packet identifier and the DUP flag, as MQTT requires. With `cut`, the connection ends
    when the broker's first response to the message has arrived, so that the sensor does not receive it.
    """
    name = b"sensor-%d" % (number % 20)
    with socket.create_connection(address, timeout=ATTEMPT_SECONDS) as sensor:
        sensor.sendall(_packet(0x10, b"\x00\x04MQTT\x04\x00\x00\x3c" + len(name).to_bytes(2, "big") + name))
        stream = sensor.makefile("rb")
        _read(stream, 0x20)
        topic, packet = b"bench/urn", (number % 65_000 + 1).to_bytes(2, "big")
        publish = len(topic).to_bytes(2, "big") + topic + packet + body(number)
        sensor.sendall(_packet(0x30 | qos << 1 | (8 if again else 0), publish))
        _read(stream, 0x40 if qos == 1 else 0x50)
        if cut:
            return False
        if qos == 2:
            sensor.sendall(b"\x62\x02" + packet)
            _read(stream, 0x70)
        return True


def nats(address: tuple[str, int], number: int) -> bool:
    """Publish an event to the stream, with its number as the id of the message; return whether it was acknowledged."""
    header = b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n" % number
    text = body(number)
    with socket.create_connection(address, timeout=ATTEMPT_SECONDS) as sensor:
        stream = sensor.makefile("rb")
        stream.readline()
        sensor.sendall(b'CONNECT {"verbose":false,"headers":true}\r\nSUB i.%d 1\r\n' % number)
        sensor.sendall(b"HPUB e i.%d %d %d\r\n%s%s\r\n" % (number, len(header), len(header + text), header, text))
        while (line := stream.readline()).startswith(b"PING"):
            sensor.sendall(b"PONG\r\n")
        return line.startswith(b"MSG") and b'"seq"' in stream.readline()


def _packet(first: int, rest: bytes) -> bytes:
    return bytes([first, *length(len(rest))]) + rest


def _read(stream: BinaryIO, kind: int) -> None:
    """Read packets until one of this kind has arrived; raise ConnectionError where none does."""
    while True:
        head = stream.read(2)
        if len(head) < 2:
            raise ConnectionError("closed")
        stream.read(head[1])  # responses to a sensor are short
        if head[0] & 0xF0 == kind:
            return
