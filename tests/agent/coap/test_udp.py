"""The two ways to read and send datagrams do the same: a system call for many, and one for each; names of senders."""

import asyncio
import contextlib
import errno
import socket
import struct
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from agent.coap.counters import Counters
from agent.coap.udp import (
    DATAGRAMS_PER_READ,
    BatchedDatagrams,
    Received,
    SingleDatagrams,
    UdpSocket,
    endpoint_of,
    endpoint_of_peer,
    uri_host,
)
from agent.listening import BindError
from tests.agent.coap.sensor import CHANGED, NON, Sensor, post
from tests.agent.coap.serving import serving
from tests.agent.recorder import Recorder
from tests.support.flushes import refusing
from tests.support.waiting import until

IS_BUILT = find_spec("agent.coap._datagrams") is not None
SIZE = 1_500
WAYS = [
    SingleDatagrams,
    pytest.param(BatchedDatagrams, marks=pytest.mark.skipif(not IS_BUILT, reason="the extension is not built")),
]
pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as udp:
        udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
        udp.setblocking(False)
        udp.bind(("::", 0))
        yield udp


@contextlib.contextmanager
def sensor(server: socket.socket, host: str) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as udp:
        udp.settimeout(5)
        udp.connect((host, server.getsockname()[1]))
        yield udp


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("host", ["::1", "127.0.0.1", "127.0.0.2"])
def test_an_answer_leaves_from_the_address_that_received_the_request(
    server: socket.socket, way: type[SingleDatagrams], host: str
) -> None:
    datagrams = way(server, SIZE, DATAGRAMS_PER_READ)
    with sensor(server, host) as client:  # connected: it takes datagrams from that address only
        client.send(b"request")
        [(datagram, endpoint, truncated)] = datagrams.receive()
        assert datagram == b"request"
        assert not truncated
        assert endpoint.address[1] == client.getsockname()[1]
        assert endpoint.sender == (f"coap://[{host}]" if ":" in host else "coap://127.0.0.1")
        assert datagrams.send([(b"one", endpoint), (b"two", endpoint)]) == 0
        assert [client.recv(SIZE), client.recv(SIZE)] == [b"one", b"two"]


@pytest.mark.parametrize("way", WAYS)
def test_a_read_takes_what_waits_up_to_its_number(server: socket.socket, way: type[SingleDatagrams]) -> None:
    datagrams = way(server, SIZE, 5)
    assert list(datagrams.receive()) == []
    sent = [bytes(number) for number in (0, 1, SIZE - 1, SIZE, SIZE + 1, 2 * SIZE, 3)]
    with sensor(server, "::1") as client:
        for datagram in sent:
            client.send(datagram)
        batches: list[list[Received]] = [list(datagrams.receive()) for _ in range(3)]
    assert [len(batch) for batch in batches] == [5, 2, 0]
    read = [received for batch in batches for received in batch]
    assert [datagram for datagram, _, _ in read] == [datagram[:SIZE] for datagram in sent]
    assert [truncated for _, _, truncated in read] == [len(datagram) > SIZE for datagram in sent]


@pytest.mark.parametrize("way", WAYS)
def test_what_the_kernel_refuses_is_counted_and_the_others_are_sent(
    server: socket.socket, way: type[SingleDatagrams]
) -> None:
    datagrams = way(server, SIZE, DATAGRAMS_PER_READ)
    with sensor(server, "::1") as client:
        client.send(b"request")
        [(_, endpoint, _)] = datagrams.receive()
        nowhere = endpoint_of(("::1", 0, 0, 0), b"")
        outgoing = [(b"1", nowhere), (b"2", endpoint), (bytes(70_000), endpoint), (b"3", endpoint), (b"4", nowhere)]
        assert datagrams.send(outgoing) == 3
        assert [client.recv(SIZE), client.recv(SIZE)] == [b"2", b"3"]


@pytest.mark.parametrize("way", WAYS)
def test_a_closed_socket_is_an_error(server: socket.socket, way: type[SingleDatagrams]) -> None:
    datagrams = way(server, SIZE, DATAGRAMS_PER_READ)
    server.close()
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as other:  # takes the descriptor of the closed one
        with pytest.raises(OSError, match="Bad file descriptor"):
            datagrams.receive()
        assert datagrams.send([(b"late", endpoint_of(other.getsockname(), b""))]) == 1


@pytest.mark.parametrize("address", [("::1", 5683, 0, 0), ("fe80::1", 9, 7, 1), ("::ffff:10.0.0.7", 65535, 0, 0)])
@pytest.mark.parametrize("packet_info", [b"", bytes(15) + b"\1" + b"\1\0\0\0", b"\xfe\x80" + bytes(14) + b"\2\0\0\0"])
def test_an_endpoint_is_the_same_from_the_kernels_structures(
    address: tuple[str, int, int, int], packet_info: bytes
) -> None:
    endpoint = endpoint_of(address, packet_info)
    assert endpoint_of_peer(endpoint.peer[:28] + packet_info) == endpoint


@pytest.mark.skipif(not IS_BUILT, reason="the extension is not built")
def test_the_extension_refuses_what_is_no_datagram(server: socket.socket) -> None:
    from agent.coap import _datagrams

    peer = endpoint_of(("::1", 1, 0, 0), b"").peer
    for wrong in ([()], [(b"x",)], [(b"x", b"")], [("x", peer)], [(b"x", peer[:-1])], [(b"x", peer, 1)], ["xy"]):
        with pytest.raises(TypeError):
            _datagrams.send(server.fileno(), wrong)  # type: ignore[arg-type]
    for size, count in ((0, 1), (65_537, 1), (1, 0), (1, 1_025), (-1, -1)):
        with pytest.raises(ValueError, match="possible"):
            _datagrams.Receiver(size, count)


async def test_answers_of_one_turn_leave_together_also_at_the_end() -> None:
    counters = Counters()
    with UdpSocket("[::1]:0", SIZE, counters) as udp, sensor(udp._socket, "::1") as client:
        client.send(b"request")
        [(_, endpoint, _)] = udp.receive()
        udp.send(b"first", endpoint)
        client.settimeout(0)
        with pytest.raises(BlockingIOError):
            client.recv(SIZE)
        await asyncio.sleep(0)
        assert client.recv(SIZE) == b"first"
        udp.send(b"last", endpoint)
        udp.__exit__(None, None, None)
        assert client.recv(SIZE) == b"last"
    assert counters.send_failed == 0


def test_a_kernel_without_ipv6_is_named_as_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", refusing(errno.EAFNOSUPPORT))  # as when it was booted with ipv6.disable=1
    with (
        pytest.raises(BindError, match="CoAP needs a kernel with IPv6"),
        UdpSocket("127.0.0.1:0", SIZE, Counters()),
    ):
        pass


LOOPBACK = socket.if_nametoindex("lo")


@pytest.mark.parametrize(
    ("address", "host"),
    [
        (("192.0.2.1", 1), "192.0.2.1"),
        (("2001:db8::7", 5683, 0, 0), "[2001:db8::7]"),
        (("::ffff:192.0.2.1", 40_000, 0, 0), "192.0.2.1"),
        (("::192.0.2.1", 1, 0, 0), "[::192.0.2.1]"),
        (("fe80::1", 5683, 0, LOOPBACK), "[fe80::1%25lo]"),
        (("fe80::1%lo", 1, 0, LOOPBACK), "[fe80::1%25lo]"),
        (("fe80::1", 5683, 0, 999_999), "[fe80::1%25999999]"),
    ],
)
def test_a_sender_is_named_by_its_address(address: tuple[str | int, ...], host: str) -> None:
    assert uri_host(address) == host


@pytest.mark.parametrize(
    ("local", "group"),
    [("ff02::fd", True), ("::ffff:224.0.1.187", True), ("::ffff:192.0.2.1", False), ("2001:db8::1", False)],
)
def test_a_group_is_told_from_an_address(local: str, group: bool) -> None:
    info = socket.inet_pton(socket.AF_INET6, local) + bytes(4)
    assert endpoint_of(("::1", 1, 0, 0), info).group is group


def link_local() -> tuple[str, int]:
    """Find a link-local address of this machine, and its zone."""
    for line in Path("/proc/net/if_inet6").read_text(encoding="ascii").splitlines():
        digits, index, *_ = line.split()
        if digits.startswith("fe80"):
            return socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits)), int(index, 16)
    pytest.skip("this machine has no link-local address")


async def test_a_link_local_sensor_is_named_with_its_zone_and_answered(recorder: Recorder) -> None:
    host, zone = link_local()
    async with serving(recorder) as server, Sensor(server.port, host, zone) as sensor:
        assert (await sensor.ask(post())).code == CHANGED
    assert recorder.deliveries[0].sender == f"coap://[{host}%25{socket.if_indextoname(zone)}]"


async def test_a_request_to_a_group_is_dropped() -> None:
    _, zone = link_local()
    group = socket.inet_pton(socket.AF_INET6, "ff02::fd")
    async with serving(Recorder()) as server:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as member:
            # The membership of any other socket is sufficient for the kernel to deliver to this one, too.
            member.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, group + struct.pack("@I", zone))
            member.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, zone)
            member.sendto(post(kind=NON), ("ff02::fd", server.port, 0, zone))
            await until(lambda: server.counters.group == 1, "the request is counted")
        assert server.counters.fast == 0
