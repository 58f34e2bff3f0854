"""Cut what a broker sends into MQTT packets, and read each PUBLISH, in bounded memory.

paho keeps a packet of any size in memory, and ends the connection over a property that it holds to be malformed
(U+FEFF in a text, which brokers pass on). A message at QoS 1 would then come again first, on each connection. Here a
message's properties are skipped unread, and of a message that is too large only the beginning is kept.
"""

from __future__ import annotations

from typing import NamedTuple

from agent.mqtt.error import MqttError

HEAD_BYTES_MAX = 1 << 17
"""Of a packet that is too large, so much is looked at: the topic, the packet identifier, usual properties, and as much
of the payload as is recorded."""
OTHER_BYTES_MAX = 1 << 18
"""The largest packet that is no PUBLISH: those hold a reason and properties, or a byte for each subscription."""
REMAINING_LENGTH_MAX = 0x0FFF_FFFF
"""The largest that can be written (MQTT 5 section 1.5.5)."""

_PUBLISH = 0x30
_TYPE_BITS, _RETAIN_BIT = 0xF0, 0x01
_LENGTH_BYTES_MAX = 4


class Message(NamedTuple):
    """A PUBLISH packet without its properties."""

    topic: str
    payload: bytes
    """Only the beginning where it is shorter than `size`."""
    size: int
    """Bytes of the whole payload."""
    message_id: int = 0
    """The packet identifier to acknowledge; 0 where no acknowledgement is due."""
    retain: bool = False
    fault: str = ""
    """Why it cannot be taken for a message; empty where all is well."""


Item = bytes | Message
"""A packet: a PUBLISH read, any other as it came."""


class Packets:
    """The packets of one connection."""

    def __init__(self, packet_bytes_max: int, *, properties: bool) -> None:
        self._packet_bytes_max = packet_bytes_max
        """Of a PUBLISH that is kept whole."""
        self._properties = properties
        """Whether packets have properties: those of MQTT 5 have."""
        self._waiting = bytearray()
        """The beginning of a packet."""
        self._needed = 0
        """How many bytes must be there before it is worth looking again."""
        self._skip = 0
        """How many bytes to come belong to a packet that is read already."""

    def feed(self, data: bytes) -> list[Item]:
        """Take the next bytes; return the packets that are complete by them.

        Raises MqttError where the bytes are no packets of MQTT, which nothing after them can be told apart from.
        """
        if self._skip:
            passed = min(self._skip, len(data))
            self._skip -= passed
            data = data[passed:]
            if not data:
                return []
        self._waiting += data
        if len(self._waiting) < self._needed:
            return []
        return self._cut_all(bytes(self._waiting))

    def _cut_all(self, buffer: bytes) -> list[Item]:
        items: list[Item] = []
        at, self._needed = 0, 0
        while (cut := self._cut(buffer, at)) is not None:
            item, at = cut
            items.append(item)
        self._skip = max(0, at - len(buffer))
        self._waiting = bytearray(buffer[at:])
        return items

    def _cut(self, buffer: bytes, at: int) -> tuple[Item, int] | None:
        """Cut a packet off; None where it is not there yet. Its end may lie behind the buffer's."""
        read = _variable_integer(buffer, at + 1)
        if read is None:
            if len(buffer) - at > _LENGTH_BYTES_MAX:
                raise MqttError("the broker sends what is no MQTT packet")
            return None
        length, start = read
        publish = buffer[at] & _TYPE_BITS == _PUBLISH
        if not publish and length > OTHER_BYTES_MAX:
            raise MqttError(f"the broker sends a packet of type {buffer[at] >> 4} with {length} bytes")
        kept = min(length, HEAD_BYTES_MAX) if publish and length > self._packet_bytes_max else length
        if len(buffer) < start + kept:
            self._needed = start + kept - at
            return None
        end = start + length
        item = self._message(buffer[at], buffer[start : start + kept], length) if publish else buffer[at:end]
        return item, end

    def _message(self, first: int, head: bytes, length: int) -> Message:
        """Read a PUBLISH (MQTT 5 section 3.3) of which the head is there."""
        quality, retain = first >> 1 & 3, bool(first & _RETAIN_BIT)
        at = 2 + int.from_bytes(head[:2], "big")
        name = head[2:at]
        message_id = 0
        if quality:
            message_id = int.from_bytes(head[at : at + 2], "big") if at + 2 <= length else 0
            at += 2
        if self._properties:
            properties, at = _variable_integer(head, at) or (0, length + 1)
            at += properties
        topic = name.decode(errors="replace")
        fault = _fault(quality, name, topic, message_id) if at <= length else "it breaks off"
        due = message_id if quality == 1 else 0
        return Message(topic, head[at:], max(0, length - at), due, retain, fault)


def _fault(quality: int, name: bytes, topic: str, message_id: int) -> str:
    if quality > 1:
        return "its QoS is none that was subscribed to"
    if quality and not message_id:
        return "it has no packet identifier"
    if not name:
        return "it has no topic"
    return "" if topic.encode() == name else "its topic is not UTF-8"


def _variable_integer(data: bytes, at: int) -> tuple[int, int] | None:
    """Read a variable byte integer and where it ends (MQTT 5 section 1.5.5); None where it breaks off or never ends."""
    value = 0
    for place, byte in enumerate(data[at : at + _LENGTH_BYTES_MAX]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    return None
