"""Splits a broker's bytes into MQTT packets, and decodes each PUBLISH, in bounded memory.

paho keeps a packet of any size in memory, and closes the connection because of a property that it regards as malformed
(U+FEFF in a text, which brokers pass on). A message at QoS 1 would then be the first again on each connection. Here a
message's properties are skipped unread, and only the beginning of a message that is too large is kept (decision 34).
"""

from dataclasses import dataclass
from typing import Final, final

HEAD_BYTES_MAX: Final = 1 << 17
"""The part that is kept of a packet that is too large: the topic, the packet identifier, usual properties, and as much
of the payload as is recorded."""
OTHER_BYTES_MAX: Final = 1 << 18
"""The largest packet but for PUBLISH: others hold a reason and properties, or a byte for each subscription."""
REMAINING_LENGTH_MAX: Final = 0x0FFF_FFFF
"""The largest value of the format (MQTT 5 section 1.5.5)."""

_PUBLISH: Final = 0x30
_TYPE_BITS: Final = 0xF0
_LENGTH_BYTES_MAX: Final = 4


@final
@dataclass(slots=True, init=False)
class Message:
    """A PUBLISH packet without its properties."""

    topic: str
    payload: bytes
    """Only the beginning where it is shorter than `size`."""
    size: int
    """Bytes of the whole payload."""
    message_id: int
    """The packet identifier to acknowledge; 0 where no acknowledgement is due."""
    retain: bool
    fault: str
    """Why it is malformed; empty where it is not."""

    def __init__(  # its fields
        self, topic: str, payload: bytes, size: int, message_id: int = 0, retain: bool = False, fault: str = ""
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.size = size
        self.message_id = message_id
        self.retain = retain
        self.fault = fault


Item = bytes | Message
"""A packet: a PUBLISH decoded, any other as bytes."""


class Packets:
    """The packets of one connection."""

    def __init__(self, packet_bytes_max: int, *, properties: bool) -> None:
        self._packet_bytes_max = packet_bytes_max
        """The size of the largest PUBLISH that is kept whole."""
        self._properties = properties
        """Whether packets have properties, as in MQTT 5."""
        self._waiting = bytearray()
        """The beginning of a packet."""
        self._needed = 0
        """How many bytes are needed before the next attempt to split."""
        self._skip = 0
        """How many of the next bytes belong to a packet that was already decoded."""

    def feed(self, data: bytes) -> list[Item]:
        """Return the packets that are complete with the next bytes.

        Raise MqttError where the bytes are no MQTT packets, after which no packet boundary can be found.
        """
        if self._skip:
            passed = min(self._skip, len(data))
            self._skip -= passed
            data = data[passed:]
            if not data:
                return []
        self._waiting += data
        items: list[Item] = []
        if len(self._waiting) < self._needed:
            return items
        buffer = bytes(self._waiting)
        at, self._needed = 0, 0
        while (cut := self._cut(buffer, at)) is not None:
            item, at = cut
            items.append(item)
        self._skip = max(0, at - len(buffer))
        self._waiting = bytearray(buffer[at:])
        return items

    def _cut(self, buffer: bytes, at: int) -> tuple[Item, int] | None:
        """Return the next packet and its end; None where it is incomplete. The end may lie beyond the buffer's."""
        read = _variable_integer(buffer, at + 1)
        if read is None:
            if len(buffer) - at > _LENGTH_BYTES_MAX:
                raise MqttError("the broker has sent data that is not an MQTT packet")
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
        """Decode a PUBLISH (MQTT 5 section 3.3) from its beginning."""
        qos, retain = first >> 1 & 3, bool(first & 1)
        at = 2 + int.from_bytes(head[:2], "big")
        name = head[2:at]
        message_id = 0
        if qos:
            message_id = int.from_bytes(head[at : at + 2], "big") if at + 2 <= length else 0
            at += 2
        if self._properties:
            properties, at = _variable_integer(head, at) or (0, length + 1)
            at += properties
        topic = name.decode(errors="replace")
        fault = _fault(qos, name, topic, message_id) if at <= length else "it breaks off"
        due = message_id if qos == 1 else 0
        return Message(topic, head[at:], max(0, length - at), due, retain, fault)


def _fault(qos: int, name: bytes, topic: str, message_id: int) -> str:
    if qos > 1:
        return "its QoS is none that was subscribed to"
    if qos and not message_id:
        return "it has no packet identifier"
    if not name:
        return "it has no topic"
    return "" if topic.encode() == name else "its topic is not UTF-8"


def _variable_integer(data: bytes, at: int) -> tuple[int, int] | None:
    """Return a variable byte integer and its end (MQTT 5 section 1.5.5); None where it is incomplete or too long."""
    value = 0
    for place, byte in enumerate(data[at : at + _LENGTH_BYTES_MAX]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    return None


class MqttError(Exception):
    """The connection cannot be made, or has failed: retry."""
