"""The names of senders."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import cbor2
import pytest
from aiocoap import Message  # type: ignore[import-untyped] # aiocoap carries no types
from aiocoap.numbers.codes import Code  # type: ignore[import-untyped]

from agent.coap.message import Option, write_options
from agent.coap.oscore.serving import OscoreServing
from agent.coap.udp import endpoint_of, uri_host
from agent.delivery import Answer, Status
from tests.agent.coap.oscore.protected import CREDENTIAL, ProtectedSensor, sensor_folder
from tests.agent.coap.sensor import BODY, CHANGED, NON, URI_QUERY, Sensor, post
from tests.agent.coap.serving import serving
from tests.agent.recorder import Recorder
from tests.support.waiting import until

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


NOW = 1_763_706_000_123
ASKING = ((URI_QUERY, b"now"), (URI_QUERY, b"d=urn:x:1"))
ANSWERED = write_options((Option(12, b"\x3c"),)) + b"\xff" + cbor2.dumps(NOW)


@pytest.mark.parametrize("fast", [True, False])
async def test_whoever_asks_is_told_the_time_and_nobody_else(fast: bool, recorder: Recorder) -> None:
    async with serving(recorder, fast=fast, now=lambda: NOW) as server:
        with Sensor(server.port) as sensor:
            asked = await sensor.ask(post(1, options=ASKING))
            assert (asked.code, asked.rest) == (CHANGED, ANSWERED)
            assert (await sensor.ask(post(2, kind=NON, options=ASKING))).rest == ANSWERED
            assert (await sensor.ask(post(3))).rest == b""
        assert server.counters.fast == (3 if fast else 0)
    assert recorder.deliveries[0].query == {"d": "urn:x:1"}


async def test_a_gateway_that_is_not_sure_of_the_time_tells_none() -> None:
    async with serving(Recorder()) as server, Sensor(server.port) as sensor:
        response = await sensor.ask(post(options=ASKING))
    assert (response.code, response.rest) == (CHANGED, b"")


async def test_a_retransmission_is_told_the_time_as_it_is_then(recorder: Recorder) -> None:
    times = iter((NOW - 90_000, NOW))
    async with serving(recorder, now=lambda: next(times)) as server, Sensor(server.port) as sensor:
        await sensor.ask(post(options=ASKING))
        assert (await sensor.ask(post(options=ASKING))).rest == ANSWERED
    assert recorder.deliveries[0].retransmission_key == recorder.deliveries[1].retransmission_key


async def test_a_refusal_tells_no_time() -> None:
    async with serving(Recorder(Answer(Status.UNDECODABLE, reason="no")), now=lambda: NOW) as server:
        with Sensor(server.port) as sensor:
            response = await sensor.ask(post(options=ASKING))
    assert (response.code, response.rest) == (0x80, b"\xffno")


async def test_the_time_is_told_under_oscore_too(tmp_path: Path) -> None:
    oscore = OscoreServing((CREDENTIAL,), tmp_path / "numbers")
    client = ProtectedSensor(sensor_folder(tmp_path / "sensor"))
    async with serving(Recorder(), oscore=oscore, now=lambda: NOW) as server, Sensor(server.port) as sensor:
        await client.post(sensor)
        message = Message(code=Code.POST, uri_path=("e",), uri_query=("now",), payload=BODY, echo=client.echo)
        raw, reference = client.sealed(message)
        answer = client.read(await sensor.ask_raw(raw), reference)
    assert (answer.code, cbor2.loads(answer.payload)) == (Code.CHANGED, NOW)
