"""Many datagrams in one call: each arrives whole, in order, and one that fails takes no other with it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.coap.datagrams import NAME_BYTES, SENT_BYTES_MAX, Receiver, Sender
from agent.coap.endpoint import endpoint_of, name_of

AT_ONCE = 8
SIZE = 2_000
LARGEST = 65_507 - 40
NOWHERE = name_of(("::1", 0, 0, 0))
"""Port 0: the kernel refuses it."""


def udp() -> socket.socket:
    made = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    made.setblocking(False)
    made.bind(("::1", 0))
    return made


@pytest.fixture
def ours() -> Iterator[socket.socket]:
    with closing(udp()) as made:
        yield made


@pytest.fixture
def theirs() -> Iterator[socket.socket]:
    with closing(udp()) as made:
        yield made


def received(of: socket.socket) -> list[bytes]:
    found = []
    while True:
        try:
            found.append(of.recv(1 << 16))
        except BlockingIOError:
            return found


datagrams = st.lists(st.binary(max_size=SIZE), max_size=3 * AT_ONCE)


@given(datagrams)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_sent_is_taken_in_order_with_its_sender(
    ours: socket.socket, theirs: socket.socket, sent: list[bytes]
) -> None:
    receiver, found = Receiver(ours.fileno(), SIZE, AT_ONCE), []
    for datagram in sent:
        theirs.sendto(datagram, ours.getsockname())
    while taken := receiver.take():
        assert len(taken) <= AT_ONCE
        found += taken
    assert [one.datagram for one in found] == sent
    assert not any(one.truncated for one in found)
    for one in found:
        assert len(one.name) == NAME_BYTES
        endpoint = endpoint_of(one.name, one.control)
        assert endpoint.address == theirs.getsockname()
        assert endpoint.control[socket.CMSG_LEN(0) :][:16] == socket.inet_pton(socket.AF_INET6, "::1")


@given(datagrams, st.sets(st.integers(0, 3 * AT_ONCE)))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_one_that_the_kernel_refuses_takes_no_other_with_it(
    ours: socket.socket, theirs: socket.socket, sent: list[bytes], refused: set[int]
) -> None:
    name = name_of(theirs.getsockname())
    work = [(datagram, NOWHERE if place in refused else name, b"") for place, datagram in enumerate(sent)]
    failed = Sender(ours.fileno(), AT_ONCE).send(work)
    assert received(theirs) == [datagram for place, datagram in enumerate(sent) if place not in refused]
    assert failed == len([place for place in refused if place < len(sent)])


def test_the_largest_datagrams_go_in_as_many_calls_as_they_need(ours: socket.socket, theirs: socket.socket) -> None:
    sent = [bytes([number]) * LARGEST for number in range(5)]
    assert len(sent) * LARGEST > SENT_BYTES_MAX
    assert Sender(ours.fileno(), AT_ONCE).send([(one, name_of(theirs.getsockname()), b"") for one in sent]) == 0
    assert received(theirs) == sent


def test_a_reply_leaves_from_the_address_that_was_spoken_to(theirs: socket.socket) -> None:
    with closing(socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)) as ours:
        ours.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        ours.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
        ours.bind(("::", 0))
        with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as sensor:
            sensor.settimeout(5)
            sensor.sendto(b"question", ("127.0.0.9", ours.getsockname()[1]))
            (taken,) = Receiver(ours.fileno(), SIZE, AT_ONCE).take()
            endpoint = endpoint_of(taken.name, taken.control)
            assert Sender(ours.fileno(), AT_ONCE).send([(b"answer", endpoint.name, endpoint.control)]) == 0
            assert sensor.recvfrom(100) == (b"answer", ("127.0.0.9", ours.getsockname()[1]))


def test_a_datagram_that_is_too_large_is_told_from_the_others(ours: socket.socket, theirs: socket.socket) -> None:
    for datagram in (b"a" * SIZE, b"b" * (SIZE + 1), b"c"):
        theirs.sendto(datagram, ours.getsockname())
    taken = Receiver(ours.fileno(), SIZE, AT_ONCE).take()
    assert [(one.datagram[:1], len(one.datagram), one.truncated) for one in taken] == [
        (b"a", SIZE, False), (b"b", SIZE, True), (b"c", 1, False),
    ]  # fmt: skip


def test_a_socket_that_fails_says_so(ours: socket.socket) -> None:
    receiver = Receiver(ours.fileno(), SIZE, AT_ONCE)
    ours.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        receiver.take()
