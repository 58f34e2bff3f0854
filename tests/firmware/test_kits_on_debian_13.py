"""The kits in C and MicroPython on Debian 13: libcoap with OSCORE, and MicroPython's Unix port."""

import asyncio
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.coap.oscore.credentials import create_credential
from simulators.services.install import programs
from tests.docs.pages import ROOT, blocks
from tests.firmware import wakings
from tests.firmware.test_kits import EXAMPLES
from tests.packaging import roots

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(
        not roots.may_build() or programs.find("mmdebstrap") is None,
        reason="root and mmdebstrap are needed: make test-all installs it",
    ),
]
INCLUDED = "gcc,libc6-dev,libcoap3-dev,pkgconf,micropython"
PLAIN, PROTECTED, PYTHON = "urn:kit:libcoap", "urn:dev:mac:00158d0001a2b3c4", "urn:kit:micropython"
WAKINGS, CUTS = 40, 8
CONFIRMABLE = 0


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> roots.Root:
    """Return a system with the kit in C compiled in it."""
    folder = tmp_path_factory.mktemp("debian13")
    roots.build(folder / "system.tar", roots.SUITES["13"], INCLUDED)
    system = roots.unpack(folder / "system.tar", folder / "system")
    (folder / "system.tar").unlink()
    shutil.copytree(EXAMPLES, system.path("/kits"))
    warnings = "-std=c99 -Wall -Wextra -Werror -O2"
    build = f"cc {warnings} -DACK_TIMEOUT_MS={wakings.ACK_TIMEOUT_MS} -o sensor sensor.c"
    libraries = "$(pkg-config --cflags --libs libcoap-3-openssl)"
    system.run("sh", "-c", f"cd /kits/libcoap && {build} {libraries}")
    return system


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, root: roots.Root) -> Iterator[tuple[int, Path]]:
    """Yield the port of an agent with credentials of the protected sensor, and its configuration file."""
    folder = tmp_path_factory.mktemp("gateway")
    credentials = folder / "credentials"
    credentials.mkdir()
    _, credential = create_credential(credentials, PROTECTED, relay=False)
    values = {
        "master_secret": credential.secret,
        "master_salt": credential.salt,
        "sender_id": credential.sensor_id,
        "recipient_id": credential.gateway_id,
    }
    (oscore,) = blocks(ROOT / "docs" / "oscore.md", "oscore")
    for name, value in values.items():
        oscore, count = re.subn(rf'^{name},hex,".*"$', f'{name},hex,"{value.hex()}"', oscore, flags=re.MULTILINE)
        assert count == 1
    root.path("/kits/libcoap/oscore.conf").write_text(oscore)
    more = f'[coap.oscore]\ncredentials_dir = "{credentials}"\n'
    with wakings.agent(folder / "oncegate.toml", more) as process:
        yield wakings.coap_port(process), folder / "oncegate.toml"


def in_root(root: roots.Root, folder: str, command: str) -> list[str]:
    return ["chroot", str(root.folder), "sh", "-c", f"cd {folder} && exec {command}"]


@pytest.mark.parametrize(
    ("kit", "command", "device"),
    [
        ("libcoap", f"./sensor {wakings.HOST} {{port}} {PLAIN} plain", PLAIN),
        ("libcoap", f"./sensor {wakings.HOST} {{port}} {PROTECTED} protected oscore.conf", PROTECTED),
        ("micropython", "micropython main.py", PYTHON),
    ],
    ids=["libcoap", "libcoap with OSCORE", "the Unix port of MicroPython"],
)
async def test_the_sensor_loses_and_doubles_nothing(
    root: roots.Root, gateway: tuple[int, Path], kit: str, command: str, device: str
) -> None:
    folder = f"/kits/{kit}"
    await wakings.live(in_root(root, folder, command), root.path(folder), *gateway, device, wakings=WAKINGS, cuts=CUTS)


class Stranger(asyncio.DatagramProtocol):
    """Answers each confirmable request with a code, without OSCORE, as whoever hears the link could."""

    def __init__(self, code: int) -> None:
        self.code = code
        self.answered = 0

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        self.transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        token_length = data[0] & 0x0F
        if data[0] >> 4 & 0b11 == CONFIRMABLE and data[1]:
            self.answered += 1
            self.transport.sendto(bytes([0x60 | token_length, self.code]) + data[2 : 4 + token_length], addr)


@pytest.mark.parametrize("code", [0x80, 0x82])
async def test_the_sensor_with_libcoap_keeps_under_oscore_what_a_stranger_refuses(root: roots.Root, code: int) -> None:
    (oscore,) = blocks(ROOT / "docs" / "oscore.md", "oscore")
    root.path("/kits/libcoap/any.conf").write_text(oscore)
    transport, stranger = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: Stranger(code), (wakings.HOST, 0)
    )
    port = transport.get_extra_info("sockname")[1]
    command = in_root(root, "/kits/libcoap", f"./sensor {wakings.HOST} {port} {PROTECTED} of-{code} any.conf")
    said, _ = await wakings.wake(command, root.folder)
    transport.close()
    assert (said, stranger.answered) == ("measured 1 1\nwaiting 1\n", 1)
