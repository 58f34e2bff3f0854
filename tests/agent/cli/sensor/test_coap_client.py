"""The CoAP client of `oncegate send` against peers that lose, delay and refuse."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from agent.cli.sensor.senders import Request, Target, post, read_target, waits
from agent.coap import message
from agent.coap.message import Option

SOON = 0.05
LONG = 30.0
ACKNOWLEDGED = 1.0
"""Enough for an acknowledgement at any load."""
Address = tuple[str, int]
Peer = Callable[[socket.socket, bytes, Address, int], None]
"""Serves the datagram with this number, from 1 on."""


@contextmanager
def peer(serve: Peer) -> Iterator[tuple[Target, list[bytes]]]:
    """Run a peer that records its datagrams until an empty one arrives."""
    received: list[bytes] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))

        def run() -> None:
            while datagram := sock.recvfrom(2_000):
                if not datagram[0]:
                    return
                received.append(datagram[0])
                serve(sock, datagram[0], datagram[1], len(received))

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield Target("127.0.0.1", sock.getsockname()[1]), received
        finally:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
                end.sendto(b"", sock.getsockname())
            thread.join()


def ask(target: Target, *seconds: float) -> tuple[Any, Request, list[str]]:
    request = Request(post(b"{}", 50))
    resends: list[str] = []
    return request.exchange(target, iter(seconds), resends.append), request, resends


def answer(sock: socket.socket, datagram: bytes, address: Address, code: int, kind: int, tail: bytes = b"") -> None:
    message_id = datagram[2:4] if kind == message.ACKNOWLEDGEMENT else b"\x12\x34"
    sock.sendto(message.response(kind, code, message_id, message.split(datagram)[0], tail), address)


def test_lost_requests_are_resent_unchanged_until_one_is_answered() -> None:
    def serve(sock: socket.socket, datagram: bytes, address: Address, number: int) -> None:
        if number == 3:
            answer(sock, datagram, address, 0x44, message.ACKNOWLEDGEMENT)

    with peer(serve) as (target, received):
        reply, request, resends = ask(target, SOON, SOON, LONG)
    assert (reply.code, reply.payload, reply.opt.max_age) == (0x44, b"", None)
    assert received == [request.datagram] * 3
    assert (request.transmissions, len(resends)) == (3, 2)


def test_a_separate_response_is_awaited_without_resending_and_acknowledged() -> None:
    def serve(sock: socket.socket, datagram: bytes, address: Address, number: int) -> None:
        if number == 1:
            sock.sendto(message.empty(message.ACKNOWLEDGEMENT, datagram[2:4]), address)
            threading.Timer(
                2 * ACKNOWLEDGED, answer, (sock, datagram, address, 0x80, message.CONFIRMABLE, b"\xffwhy")
            ).start()

    with peer(serve) as (target, received):
        reply, request, _ = ask(target, ACKNOWLEDGED, LONG)
    assert (reply.code, reply.payload) == (0x80, b"why")
    assert received == [request.datagram, message.empty(message.ACKNOWLEDGEMENT, b"\x12\x34")]


def test_foreign_and_broken_datagrams_are_passed_over() -> None:
    def serve(sock: socket.socket, datagram: bytes, address: Address, number: int) -> None:
        foreign = datagram[:4] + bytes(4)
        for noise in (b"", b"x", b"\x00" * 12, datagram, datagram[:2] + b"\0\0" + datagram[4:]):
            sock.sendto(noise, address)
        answer(sock, foreign, address, 0x44, message.ACKNOWLEDGEMENT)
        answer(sock, datagram, address, 0xA3, message.ACKNOWLEDGEMENT, message.write_options((Option(14, b"\x05"),)))

    with peer(serve) as (target, _):
        reply, _, _ = ask(target, LONG)
    assert reply is not None
    assert (reply.code.dotted, reply.opt.max_age) == ("5.03", 5)


def test_silence_ends_with_nothing() -> None:
    with peer(lambda *_: None) as (target, received):
        reply, request, _ = ask(target, SOON, SOON)
    assert (reply, received) == (None, [request.datagram] * 2)


def test_each_wait_is_twice_as_long_as_rfc_7252_has_it() -> None:
    seconds = list(waits(4, Random(1)))
    assert 2 <= seconds[0] <= 3
    assert [later / earlier for earlier, later in pairwise(seconds)] == [2] * 4


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("gateway", Target("gateway", 5683)),
        ("gateway.local:15683", Target("gateway.local", 15683)),
        ("[fe80::1%eth0]:1", Target("fe80::1%eth0", 1)),
        ("::1", Target("::1", 5683)),
        ("coap://[::1]:7", Target("::1", 7)),
    ],
)
def test_a_target_is_read(text: str, target: Target) -> None:
    assert read_target(text) == target
    assert read_target(str(target)) == target


@pytest.mark.parametrize("text", ["", "coaps://x", "x:99999", ":5683", "x:y"])
def test_what_is_no_target_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected HOST\[:PORT\]"):
        read_target(text)
