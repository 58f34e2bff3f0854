"""The commands' client of the agent's HTTP interface: tokens, TLS, and what goes wrong."""

import asyncio
import socket
from datetime import timedelta
from pathlib import Path
from threading import Thread

import pytest

from agent.cli.api import AgentUnreachableError, Api, ApiError, own_api, read_token
from agent.cli.sensor.senders import Body, HttpSender, Result
from agent.config.settings import HttpSettings
from tests.agent.http.serving import EVENT, FINGERPRINT, serving, token_file
from tests.support.logins.certificates import Authority

DAY_SECONDS = timedelta(days=1).total_seconds()
STATUS = "/api/v1/status"
DEVICE = "urn:dev:mac:00158d0001a2b3c4"
BODY = Body(EVENT, 50, "application/json", DEVICE, FINGERPRINT)


async def send(api: Api) -> Result:
    return await asyncio.to_thread(HttpSender(api, 0).send, BODY)


async def test_a_device_sends_with_the_token_in_its_file(tmp_path: Path) -> None:
    tokens = token_file(tmp_path, {f"device {DEVICE}": "d" * 40, "reader r": "r" * 40})
    secret = tmp_path / "token"
    secret.touch(0o600)
    secret.write_text("d" * 40 + "\n")
    async with serving(tmp_path, bind="0.0.0.0:0", token_file=tokens) as served:
        url = f"http://127.0.0.1:{served.server.port}/"
        accepted = await send(Api(url, read_token(secret)))
        refused = [await send(Api(url, token)) for token in ("", "r" * 40)]
        status = (await asyncio.to_thread(Api(url, "r" * 40).get, STATUS)).document
        with pytest.raises(ApiError, match="401: this token is not in the token file") as error:
            await asyncio.to_thread(Api(url, "wrong-token").get, STATUS)
    assert "wrong-token" not in str(error.value)
    assert (accepted.outcome, accepted.fingerprint, status["accepted"]) == ("accepted", FINGERPRINT, 1)
    assert [(result.outcome, result.code) for result in refused] == [("refused", "401"), ("refused", "403")]
    secret.chmod(0o644)
    with pytest.raises(ApiError, match="others may read it"):
        read_token(secret)


@pytest.mark.parametrize("bind", ["127.0.0.1", "0.0.0.0"])
async def test_the_own_agent_is_known_by_its_own_certificate_and_by_no_other_of_its_authority(
    bind: str, tmp_path: Path
) -> None:
    authority, tokens = Authority(tmp_path), token_file(tmp_path, {"reader r": "r" * 40})
    (one, _), (other, _) = (authority.issue(name, DAY_SECONDS) for name in ("one.pem", "other.pem"))
    async with serving(tmp_path, bind=f"{bind}:0", token_file=tokens, tls_certificate=one, tls_key=one) as served:
        own, foreign = (
            own_api(HttpSettings(bind=f"{bind}:{served.server.port}", tls_certificate=file)) for file in (one, other)
        )
        assert own.url.startswith("https://127.0.0.1:")
        assert (await asyncio.to_thread(own.post, "/api/v1/events", EVENT, "application/json")).code == 401
        with pytest.raises(ApiError, match="certificate verify failed"):
            await asyncio.to_thread(foreign.get, STATUS)


def test_an_agent_that_cannot_be_asked_is_named_with_the_reason() -> None:
    with pytest.raises(ApiError, match=r"http\.enabled is false"):
        own_api(HttpSettings(enabled=False))
    with pytest.raises(ApiError, match="uses any free port"):
        own_api(HttpSettings(bind="127.0.0.1:0"))
    with pytest.raises(ApiError, match="/none: "):
        own_api(HttpSettings(tls_certificate=Path("/none")))
    for url in ("127.0.0.1:8580", "ftp://x", "http://", "http://x:port"):
        with pytest.raises(ApiError, match="expected a URL such as"):
            Api(url)
    with pytest.raises(AgentUnreachableError, match=r"http://127\.0\.0\.1:1: Connection refused"):
        Api("http://127.0.0.1:1").get(STATUS)


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (b"SSH-2.0-OpenSSH\r\n", AgentUnreachableError, "SSH"),
        (b"HTTP/1.0 200 OK\r\n\r\n<html>", ApiError, "not that of an Oncegate agent"),
        (b"HTTP/1.0 500 Oh\r\n\r\nno", ApiError, "500: no"),
    ],
)
def test_an_answer_of_something_else_is_no_traceback(answer: bytes, error: type[ApiError], message: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4_096)
                connection.sendall(answer)

        thread = Thread(target=serve)
        thread.start()
        with pytest.raises(error, match=message):
            Api(f"http://127.0.0.1:{server.getsockname()[1]}").get(STATUS).document  # noqa: B018
        thread.join()
