"""Who may post and who may read: bearer tokens, what is the loopback, and HTTPS with a test's certificate."""

import json
import logging
import socket
import ssl
from contextlib import AsyncExitStack, nullcontext
from pathlib import Path

import pytest

from agent.config.settings import HttpSettings
from agent.http.address import HttpSettingsError, listen, reaches_loopback_only
from agent.http.auth.access import open_access, open_tls
from agent.http.auth.tokens import read_tokens
from agent.http.limits import Limits
from agent.listening import BindError
from tests.agent.http.client import Client, Raw, post_bytes
from tests.agent.http.serving import EVENT, FINGERPRINT, Served, serving, token_file
from tests.agent.store.stores import stored_events
from tests.support.waiting import until

DEVICE = "urn:dev:mac:00158d0001a2b3c4"
OTHER = EVENT.replace(b"3c4", b"3c5")
HOLDERS = {
    f"device {DEVICE}": "token-of-the-device",
    "relay urn:x:relay": "token-of-the-relay",
    "reader prometheus": "token-of-the-reader",
}


@pytest.mark.guarantee(2)
async def test_a_device_posts_under_its_own_identity_and_no_other_and_a_relay_for_others(tmp_path: Path) -> None:
    async with serving(tmp_path, token_file=token_file(tmp_path, HOLDERS)) as served:
        own = await served.client.post(EVENT, token="token-of-the-device")
        unnamed = await served.client.post(b'{"id":1,"data":{"n":1}}', token="token-of-the-device")
        other = await served.client.post(OTHER, token="token-of-the-device")
        stored = stored_events(served.store)[1:]
        relayed = await served.client.post(b"[%s,%s]" % (EVENT, OTHER), token="token-of-the-relay")
    assert (own.code, unnamed.code, other.code, other.document["error"]) == (200, 200, 403, "forbidden")
    assert [json.loads(b"{" + event.tail + b"}")["device"] for event in stored] == [DEVICE, DEVICE]
    assert (relayed.code, relayed.document["accepted"], relayed.document["duplicates"]) == (200, 1, 1)


@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Bearer ", "Bearer nonsense", "Basic dG9rZW4=", "token-of-the-device", "Bearer \xff\xfe"],
)
async def test_a_post_without_a_token_that_is_known_is_refused_with_a_challenge(
    tmp_path: Path, authorization: str | None
) -> None:
    fields = {} if authorization is None else {"Authorization": authorization}
    async with serving(tmp_path, token_file=token_file(tmp_path, HOLDERS)) as served:
        response = await served.client.post(EVENT, fields=fields)
        assert stored_events(served.store) == []
    assert (response.code, response.document["error"]) == (401, "unauthenticated")
    assert response.fields["WWW-Authenticate"] == 'Bearer realm="oncegate"'


async def test_two_tokens_are_a_bad_request(tmp_path: Path) -> None:
    fields = [f"Authorization: Bearer {token}" for token in HOLDERS.values()]
    async with serving(tmp_path, token_file=token_file(tmp_path, HOLDERS)) as served, Raw(served.server.port) as raw:
        raw.send(post_bytes(EVENT, *fields))
        assert (await raw.receive()).code == 400


READ = (
    *("/api/v1/status", "/api/v1/rejected", "/api/v1/latest?device=a", "/api/v1/device?device=a", "/api/v1/history"),
    *("/api/v1/live", f"/api/v1/trace?fingerprint={FINGERPRINT}", "/metrics"),
)


@pytest.mark.guarantee(6)
@pytest.mark.parametrize(
    ("fields", "local"),
    [
        ({}, True),
        ({"Host": "rebound.evil.example:8580", "Origin": "http://rebound.evil.example:8580"}, False),
        ({"Host": "gateway.example.com"}, False),
        ({"X-Forwarded-For": "203.0.113.7"}, False),
        ({"Forwarded": "for=203.0.113.7"}, False),
    ],
)
async def test_on_the_loopback_reading_takes_no_token_unless_it_comes_from_elsewhere(
    tmp_path: Path, fields: dict[str, str], local: bool
) -> None:
    """From a web page whose name resolves to the loopback (DNS rebinding), or through a proxy."""
    async with serving(tmp_path, token_file=token_file(tmp_path, HOLDERS)) as served:
        without = {(await served.client.ask("GET", path, fields=fields)).code for path in READ}
        with_token = {
            (await served.client.ask("GET", path, fields=fields, token="token-of-the-reader")).code for path in READ
        }
        public = [(await served.client.ask("GET", path, fields=fields)).code for path in ("/readyz", "/healthz", "/")]
    assert (without, with_token, public) == ({200 if local else 401}, {200}, [200, 200, 200])


@pytest.mark.guarantee(6)
async def test_a_page_of_another_site_neither_reads_nor_causes_a_search(served: Served) -> None:
    for site, code in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
        fields = {"Sec-Fetch-Site": site}
        assert {(await served.client.ask("GET", path, fields=fields)).code for path in READ} == {code}
    for path in READ:
        given = (await served.client.get(path)).fields
        assert (given["X-Content-Type-Options"], given["Cross-Origin-Resource-Policy"]) == (
            "nosniff",
            "same-origin",
        )


@pytest.mark.parametrize("bind", ["0.0.0.0:0", "[::]:0"])
async def test_beyond_the_loopback_reading_takes_a_readers_token(tmp_path: Path, bind: str) -> None:
    async with serving(tmp_path, bind=bind, token_file=token_file(tmp_path, HOLDERS)) as served:
        for path in READ:
            for token, code in (("", 401), ("token-of-the-device", 403), ("token-of-the-reader", 200)):
                assert (await served.client.get(path, token)).code == code
        for path in ("/healthz", "/readyz", "/"):
            assert (await served.client.get(path)).code == 200


@pytest.mark.guarantee(6)
@pytest.mark.parametrize(
    ("host", "served_here"),
    [
        ("localhost", True),
        ("LOCALHOST:8580", True),
        ("127.0.0.1:8580", True),
        ("[::1]:8580", True),
        ("evil.example", False),
        ("192.0.2.1", False),
        ("localhost.evil.example:8580", False),
        ("[::1", False),
    ],
)
async def test_without_tokens_a_request_that_is_meant_for_another_host_is_refused(
    served: Served, host: str, served_here: bool
) -> None:
    """Otherwise a web page could read and post through its own name that resolves to the loopback (DNS rebinding)."""
    posted = await served.client.post(EVENT, fields={"Host": host})
    read = await served.client.ask("GET", "/metrics", fields={"Host": host})
    assert (posted.code, read.code) == ((200, 200) if served_here else (403, 403))


@pytest.mark.guarantee(6)
async def test_no_token_and_no_hash_ever_stands_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    file = token_file(tmp_path, HOLDERS)
    secrets = [*HOLDERS.values(), "nonsense", *(line.split(":")[-1] for line in file.read_text().splitlines() if line)]
    async with serving(tmp_path, token_file=file) as served:
        for token in (*HOLDERS.values(), "nonsense"):
            await served.client.post(EVENT, token=token)
            await served.client.post(b"{", token=token)
    assert caplog.text
    assert [secret for secret in secrets if secret in caplog.text and secret != "# tokens"] == []


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o660, 0o666, 0o641])
def test_a_token_file_that_is_open_to_others_is_refused(tmp_path: Path, mode: int) -> None:
    file = token_file(tmp_path, HOLDERS)
    file.chmod(mode)
    with pytest.raises(HttpSettingsError, match=rf"mode {mode:o}\): chmod 640 .*tokens"):
        read_tokens(file)


HASH = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("device urn:x", "line 1: expected ROLE NAME sha256:HEX"),
        (f"device urn:x {HASH} more", "line 1: expected ROLE NAME sha256:HEX"),
        (f"admin urn:x {HASH}", "a role of device, relay, reader"),
        ("device urn:x secret", "64 hex digits"),
        (f"device urn:x {HASH.upper()}", "64 hex digits"),
        (f"device URN:oncegate:gateway:gw1 {HASH}", "the gateways' own"),
        (f"device {'x' * 300} {HASH}", "too long"),
        (f"device urn:x {HASH}\n\nrelay urn:y {HASH}", "line 3: this token occurs twice"),
        ("\ud800", "cannot be read"),
    ],
)
def test_a_mistake_in_a_token_file_is_named_by_its_line_without_the_secret(
    tmp_path: Path, line: str, message: str
) -> None:
    file = token_file(tmp_path, {})
    file.write_bytes(line.encode(errors="surrogatepass"))
    with pytest.raises(HttpSettingsError, match=message) as raised:
        read_tokens(file)
    assert "secret" not in str(raised.value)


async def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        bind = f"127.0.0.1:{served.server.port}"
        with pytest.raises(BindError, match=rf"http\.bind: cannot listen on {bind}"):
            async with serving(tmp_path / "other", bind=bind):
                pass


@pytest.mark.guarantee(6)
@pytest.mark.parametrize(
    ("bind", "loopback"),
    [
        ("127.0.0.1:0", True),
        ("127.9.9.9:0", True),
        ("[::1]:0", True),
        ("0.0.0.0:0", False),
        ("[::]:0", False),
        ("[::ffff:127.0.0.1]:0", True),
        ("192.0.2.1:0", False),
        ("[::ffff:192.0.2.1]:0", False),
        ("[fe80::1%lo]:0", False),
    ],
)
def test_only_the_loopback_is_taken_for_it_and_beyond_it_there_have_to_be_tokens(bind: str, loopback: bool) -> None:
    assert reaches_loopback_only(bind) is loopback
    needed = pytest.raises(HttpSettingsError, match=r"http\.token_file: needed")
    with nullcontext() if loopback else needed:
        open_access(HttpSettings(bind=bind))


@pytest.mark.parametrize("bind", ["127.0.0.1:0", "[::]:0"])
def test_an_answer_leaves_at_once(bind: str) -> None:
    """Asyncio sets TCP_NODELAY only on sockets with protocol TCP; without it an answer can take 40 ms longer."""
    with listen(bind) as listening:
        assert listening.proto == socket.IPPROTO_TCP


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


def test_a_key_of_another_certificate_is_named() -> None:
    with pytest.raises(HttpSettingsError, match=r"http\.tls_certificate.*http\.tls_key"):
        open_tls(HttpSettings(tls_certificate=CERTIFICATE, tls_key=CERTIFICATE))


def test_all_addresses_are_ipv6_and_ipv4() -> None:
    with listen("[::]:0") as listening:
        port = listening.getsockname()[1]
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, port)).close()
