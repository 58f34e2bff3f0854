"""The socket that paho uses: every byte once and in order, however little the kernel accepts or returns."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.mqtt.buffered_socket import SEND_BYTES_MAX, BufferedSocket
from agent.mqtt.packets import Packets
from tests.agent.mqtt.raw_broker import PUBACK, packet, publish

PACKET_BYTES_MAX = 1_000_000
Pair = tuple[BufferedSocket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, other = socket.socketpair()
    ours.setblocking(False)
    other.setblocking(False)
    with ours, other:
        yield BufferedSocket(ours, Packets(PACKET_BYTES_MAX, properties=True)), other


def received(other: socket.socket) -> bytes:
    got = b""
    while True:
        try:
            piece = other.recv(65_536)
        except BlockingIOError:
            return got
        if not piece:
            return got
        got += piece


def gathered(ours: BufferedSocket, data: bytes) -> bytes:
    """Send until the buffer is full; return the accepted bytes."""
    sent = b""
    with ours.gathering(), suppress(BlockingIOError):
        while True:
            ours.send(data)
            sent += data
    return sent


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
        buffered = BufferedSocket(ours, Packets(PACKET_BYTES_MAX, properties=True))
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
    sent += gathered(ours, data)
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
