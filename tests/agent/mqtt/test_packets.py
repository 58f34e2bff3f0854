"""Packets are the same however they are split; bytes and acknowledgements come once and in order."""

import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.mqtt.buffered_socket import SEND_BYTES_MAX, BufferedSocket
from agent.mqtt.packets import HEAD_BYTES_MAX, Item, Message, Packets
from agent.mqtt.pending import AckOrder
from tests.agent.mqtt.raw_broker import PUBACK, PUBLISH, packet, publish

PACKET_BYTES_MAX = 200
PROPERTIES = b"\x26\0\4unit\0\4\xef\xbb\xbfC"
"""With a mark that MQTT allows in its texts (MQTT 5 section 1.5.4), and that is malformed according to paho."""

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


BUFFERED_BYTES_MAX = 1_000_000
Pair = tuple[BufferedSocket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, other = socket.socketpair()
    ours.setblocking(False)
    other.setblocking(False)
    with ours, other:
        yield BufferedSocket(ours, Packets(BUFFERED_BYTES_MAX, properties=True)), other


def received(other: socket.socket) -> bytes:
    got = b""
    with suppress(BlockingIOError):
        while piece := other.recv(65_536):
            got += piece
    return got


def test_the_bytes_of_a_packet_that_takes_long_answer_the_ping(pair: Pair) -> None:
    ours, other = pair
    whole = publish(b"t", b"x" * 100)
    other.send(whole[:50])
    assert ours.recv(9) == b"\xd0\x00"
    other.send(whole[50:])
    with pytest.raises(BlockingIOError):
        ours.recv(9)
    message = ours.message()
    assert message is not None
    assert message.payload == b"x" * 100


@given(st.lists(st.binary(max_size=40)), st.lists(st.integers(1, 50), min_size=1), st.integers(1, 99))
def test_all_packets_come_once_and_in_order(sent: list[bytes], counts: list[int], cut: int) -> None:
    ours, other = socket.socketpair()
    stream = b"".join(packet(PUBACK, body) for body in sent)
    with ours, other:
        buffered = BufferedSocket(ours, Packets(BUFFERED_BYTES_MAX, properties=True))
        for at in range(0, len(stream), cut):
            other.sendall(stream[at : at + cut])
        other.shutdown(socket.SHUT_WR)
        got, at = b"", 0
        while piece := buffered.recv(counts[at % len(counts)]):
            got, at = got + piece, at + 1
        assert got == stream


def test_what_the_kernel_does_not_take_waits_and_nothing_overtakes_it(pair: Pair) -> None:
    ours, other = pair
    data = bytes(range(256)) * (SEND_BYTES_MAX // 256)
    sent = b""
    while ours.flush():
        with ours.gathering():
            ours.send(data)
        sent += data
    with pytest.raises(BlockingIOError):
        ours.send(b"later")
    with ours.gathering(), suppress(BlockingIOError):  # until the buffer is full
        while True:
            ours.send(data)
            sent += data
    got = received(other)
    while not ours.flush():
        got += received(other)
    assert ours.send(b"later") == 5
    assert got + received(other) == sent + b"later"


def test_closing_sends_what_is_gathered_if_it_can(pair: Pair) -> None:
    ours, other = pair
    with ours.gathering():
        ours.send(b"bye")
    ours.close()
    assert received(other) == b"bye"
    other.close()
    assert ours.fileno() == -1


def test_a_broken_connection_is_an_error_of_flush_and_none_of_close(pair: Pair) -> None:
    ours, other = pair
    with ours.gathering():
        ours.send(b"lost")
    other.close()
    with pytest.raises(OSError, match="Broken pipe"):
        ours.flush()
    ours.close()


@pytest.mark.guarantee(1)
@given(st.permutations(list(range(1, 9))), st.sets(st.integers(1, 8)))
def test_the_acknowledged_are_always_the_first_that_are_done(order: list[int], at_qos_0: set[int]) -> None:
    acknowledged: list[int] = []
    acks = AckOrder(acknowledged.append)
    opened = [acks.open(0 if number in at_qos_0 else number, size=number) for number in range(1, 9)]
    done: set[int] = set()
    for number in order:
        acks.finish(opened[number - 1])
        done.add(number)
        ordered = [one for one in range(1, 9) if one not in at_qos_0]
        due = next((first for first in ordered if first not in done), 9)
        assert acknowledged == [before for before in ordered if before < due]
        in_progress = [one for one in range(1, 9) if (one not in done if one in at_qos_0 else one >= due)]
        assert len(acks) == len(in_progress)
        assert acks.size == sum(in_progress)
    assert acks.acknowledged == len(acknowledged)


def test_what_is_read_ahead_is_pending_and_comes_in_pieces(pair: Pair) -> None:
    ours, other = pair
    other.send(b"\x40\x02ab\xd0")
    assert (ours.recv(1), ours.pending()) == (b"\x40", True)
    other.send(b"\x00")
    assert [ours.recv(2), ours.recv(9), ours.recv(9)] == [b"\x02a", b"b", b"\xd0\x00"]
    assert not ours.pending()
    with pytest.raises(BlockingIOError):
        ours.recv(1)
    other.close()
    assert ours.recv(1) == b""


def test_messages_stand_in_their_place_between_other_packets(pair: Pair) -> None:
    ours, other = pair
    other.send(b"\x40\x02ab" + publish(b"t", b"1") + publish(b"t", b"2") + b"\x40\x02cd")
    assert ours.message() is None
    assert ours.recv(9) == b"\x40\x02ab"
    with pytest.raises(BlockingIOError):
        ours.recv(9)
    assert [message.payload for message in (ours.message(), ours.message()) if message] == [b"1", b"2"]
    assert ours.message() is None
    assert (ours.recv(9), ours.pending()) == (b"\x40\x02cd", False)
