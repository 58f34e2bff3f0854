"""Packets are the same however the network splits them, and take only the necessary memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.mqtt.error import MqttError
from agent.mqtt.packets import HEAD_BYTES_MAX, Item, Message, Packets
from tests.agent.mqtt.raw_broker import PUBLISH, packet, publish

PACKET_BYTES_MAX = 200
PROPERTIES = b"\x26\0\4unit\0\4\xef\xbb\xbfC"

streams = st.lists(
    st.one_of(
        st.builds(packet, st.integers(0, 255), st.binary(max_size=300)),
        st.builds(
            publish,
            st.sampled_from([b"t", b"plant/a"]),
            st.binary(max_size=300) | st.just(bytes(2 * HEAD_BYTES_MAX)),
            st.integers(0, 9),
            properties=st.sampled_from([b"", PROPERTIES, 40 * PROPERTIES]),
        ),
    ),
    max_size=6,
)


def cut(stream: bytes, sizes: list[int]) -> list[Item]:
    packets = Packets(PACKET_BYTES_MAX, properties=True)
    items: list[Item] = []
    at = turn = 0
    while at < len(stream):
        end = at + sizes[turn % len(sizes)]
        items += packets.feed(stream[at:end])
        at, turn = end, turn + 1
    return items


@pytest.mark.guarantee(6)
@given(streams, st.lists(st.sampled_from([1, 2, 3, 7, 50, 16_384]), min_size=1, max_size=5))
def test_however_the_bytes_are_cut_the_packets_are_the_same(stream: list[bytes], sizes: list[int]) -> None:
    whole = b"".join(stream)
    sizes = [size if len(whole) < 10_000 else size + 5_000 for size in sizes]
    items = cut(whole, [max(1, len(whole))])
    assert len(items) == len(stream)
    assert cut(whole, sizes) == items


def test_a_message_is_read_past_its_properties() -> None:
    (item,) = cut(publish(b"plant/a", b"body", 7, properties=PROPERTIES, retain=True), [99])
    assert item == Message("plant/a", b"body", 4, 7, retain=True)


@pytest.mark.parametrize("properties", [True, False])
@pytest.mark.parametrize("identifier", [b"", b"\x07"])
def test_a_packet_identifier_that_breaks_off_is_not_acknowledged(identifier: bytes, *, properties: bool) -> None:
    body = b"\0\7plant/a" + identifier
    (item,) = Packets(PACKET_BYTES_MAX, properties=properties).feed(packet(PUBLISH | 2, body))
    assert item == Message("plant/a", b"", 0, 0, fault="it breaks off")


def test_of_a_message_that_is_too_large_the_beginning_is_kept() -> None:
    large = publish(b"plant/a", b"x" * (3 * HEAD_BYTES_MAX), 7)
    small = publish(b"plant/a", b"after")
    first, second = cut(large + small, [1_000])
    assert isinstance(first, Message)
    assert (first.size, first.message_id, first.fault) == (3 * HEAD_BYTES_MAX, 7, "")
    assert len(first.payload) < HEAD_BYTES_MAX
    assert second == Message("plant/a", b"after", 5)


def test_properties_of_any_length_are_passed_over() -> None:
    huge = b"\x26\0\1a\xff\xff" + bytes(65_535)
    (item,) = cut(publish(b"plant/a", b"body", 7, properties=4 * huge), [10_000])
    assert item == Message("plant/a", b"", 4, 7)


@pytest.mark.parametrize("stream", [b"\x30\xff\xff\xff\xff\x01", b"\x90\xff\xff\xff\x7f"])
def test_what_is_no_packet_ends_the_connection(stream: bytes) -> None:
    with pytest.raises(MqttError):
        cut(stream, [1])
