"""HTTPS, with a certificate of localhost that exists for these tests only."""

from __future__ import annotations

import ssl
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from agent.config.settings import HttpSettings
from agent.http.auth.tls import open_tls
from agent.http.errors import HttpSettingsError
from agent.http.limits import Limits
from tests.agent.http.client import Client, Raw, post_bytes
from tests.agent.http.serving import EVENT, serving
from tests.support.waiting import until

CERTIFICATE, KEY = Path(__file__).with_name("localhost.crt"), Path(__file__).with_name("localhost.key")


def trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(CERTIFICATE))


async def test_an_event_is_taken_over_tls(tmp_path: Path) -> None:
    async with serving(tmp_path, tls_certificate=CERTIFICATE, tls_key=KEY) as served:
        response = await Client(served.server.port, trusting()).post(EVENT)
        too_large = await Client(served.server.port, trusting()).post(EVENT.ljust(100_000))
    assert (response.code, too_large.code) == (200, 413)


async def test_where_there_is_tls_nothing_is_served_without_it(tmp_path: Path) -> None:
    async with serving(tmp_path, tls_certificate=CERTIFICATE, tls_key=KEY) as served, Raw(served.server.port) as raw:
        raw.send(post_bytes(EVENT))
        assert b"HTTP" not in await raw.receive_all()


async def test_old_versions_of_tls_are_refused(tmp_path: Path) -> None:
    context = trusting()
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    async with serving(tmp_path, tls_certificate=CERTIFICATE, tls_key=KEY) as served:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await Client(served.server.port, context).post(EVENT)


@pytest.mark.guarantee(6)
async def test_handshakes_that_do_not_end_take_no_connection_from_the_others(tmp_path: Path) -> None:
    limits = Limits(tls_connections_max=6)
    async with (
        serving(tmp_path, tls_certificate=CERTIFICATE, tls_key=KEY, limits=limits) as served,
        AsyncExitStack() as stack,
    ):
        for _ in range(20):
            await stack.enter_async_context(Raw(served.server.port, "127.0.0.2"))
        assert served.server.connections <= 3
        response = await Client(served.server.port, trusting()).post(EVENT)
    assert response.code == 200


@pytest.mark.guarantee(6)
@pytest.mark.parametrize("begun", [b"", b"\x16\x03\x01"])
async def test_a_client_that_leaves_in_its_handshake_leaves_nothing_behind(tmp_path: Path, begun: bytes) -> None:
    async with serving(tmp_path, tls_certificate=CERTIFICATE, tls_key=KEY) as served:
        for _ in range(10):
            async with Raw(served.server.port) as raw:
                raw.send(begun)
                await until(lambda: served.server.connections > 0, "it is accepted")
        await until(lambda: not served.server.connections, "it is forgotten")


@pytest.mark.parametrize(
    "settings",
    [
        HttpSettings(tls_certificate=CERTIFICATE),
        HttpSettings(tls_key=KEY),
        HttpSettings(tls_certificate=CERTIFICATE, tls_key=CERTIFICATE),
        HttpSettings(tls_certificate=Path("/none.crt"), tls_key=KEY),
    ],
)
def test_what_cannot_work_is_named(settings: HttpSettings) -> None:
    with pytest.raises(HttpSettingsError, match=r"http\.tls_certificate.*http\.tls_key"):
        open_tls(settings)


def test_without_a_certificate_there_is_no_tls() -> None:
    assert open_tls(HttpSettings()) is None
