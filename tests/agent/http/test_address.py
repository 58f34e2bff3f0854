"""Where the server listens, and how a client's address is written."""

from __future__ import annotations

import socket

import pytest

from agent.http.address import parse_listen_address, uri_host


@pytest.mark.parametrize(
    ("bind", "loopback"),
    [
        ("127.0.0.1:0", True),
        ("127.9.9.9:0", True),
        ("[::1]:0", True),
        ("0.0.0.0:0", False),
        ("[::]:0", False),
        ("[::ffff:127.0.0.1]:0", True),
        ("[::ffff:192.0.2.1]:0", False),
        ("[fe80::1%lo]:0", False),
    ],
)
def test_only_the_loopback_is_taken_for_it(bind: str, loopback: bool) -> None:
    assert parse_listen_address(bind).loopback is loopback


@pytest.mark.parametrize("bind", ["127.0.0.1:0", "[::]:0"])
def test_an_answer_leaves_at_once(bind: str) -> None:
    """Asyncio sets TCP_NODELAY only on sockets with protocol TCP; without it an answer can take 40 ms longer."""
    with parse_listen_address(bind).listen() as listening:
        assert listening.proto == socket.IPPROTO_TCP


def test_all_addresses_are_ipv6_and_ipv4() -> None:
    with parse_listen_address("[::]:0").listen() as listening:
        port = listening.getsockname()[1]
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, port)).close()


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (("192.0.2.1", 1), "192.0.2.1"),
        (("::ffff:192.0.2.1", 1, 0, 0), "192.0.2.1"),
        (("2001:db8::1", 1, 0, 0), "[2001:db8::1]"),
        (("fe80::1", 1, 0, socket.if_nametoindex("lo")), "[fe80::1%25lo]"),
        (("fe80::1%lo", 1, 0, socket.if_nametoindex("lo")), "[fe80::1%25lo]"),
    ],
)
def test_a_host_is_written_as_in_a_uri(address: tuple[str | int, ...], expected: str) -> None:
    assert uri_host(address) == expected
