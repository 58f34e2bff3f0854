"""Secrets that are replaced while a whole agent runs."""

import asyncio
import ssl
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import pytest

from agent import renewal
from agent.clock import SystemClock
from agent.coap.oscore.credentials import Credential, create_credential
from agent.config.load import load
from agent.delivery import refuse_uncounted
from agent.opening import Opening, open_coap
from agent.telemetry.links import Links
from simulators.services.process import Process
from tests.agent.coap.oscore.protected import posted_by_aiocoap, sensor_folder
from tests.agent.http.client import Client
from tests.agent.recorder import Recorder
from tests.support.agent_process import agent_process, configured, wait_until_ready
from tests.support.logins.certificates import Authority
from tests.support.memory_outbox import MemoryOutbox
from tests.support.waiting import until, wait_until

DEVICE = "urn:dev:mac:00158d0001a2b3c4"


def write(file: Path, text: str, mode: int = 0o640) -> None:
    """Replace a secret as one should: by renaming a whole file."""
    new = file.with_name(f"{file.name}.new")
    new.touch(mode)
    new.write_text(text)
    new.replace(file)


def status_of(port: int, token: str) -> int:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    body = b'{"device":"%s","id":1,"data":{}}' % DEVICE.encode()
    return asyncio.run(Client(port, context).post(body, token=token)).code


def line(token: str) -> str:
    return f"device {DEVICE} sha256:{sha256(token.encode()).hexdigest()}\n"


async def test_a_credential_that_is_replaced_while_the_agent_starts_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewal, "CHECK_SECONDS", 0.01)
    credentials = tmp_path / "oscore"
    credentials.mkdir()
    file, _ = create_credential(credentials, DEVICE, relay=False)
    protected: list[Iterable[str]] = []

    def protect(devices: Iterable[str]) -> None:
        """Replace the credential as soon as it has been read."""
        if not protected:
            file.unlink()
            create_credential(credentials, f"{DEVICE}:other", relay=False)
        protected.append(devices)

    settings = load(configured(tmp_path, f'[coap.oscore]\ncredentials_dir = "{credentials}"\n'))
    clock, stop = SystemClock(trusted=True), asyncio.Event()
    opening = Opening(
        *("coap", None, settings, clock, Recorder(), lambda *_: None, refuse_uncounted, protect, lambda: None),
        *(Links(clock), MemoryOutbox(), pytest.fail),
    )
    async with open_coap(opening) as opened:
        renewing = asyncio.create_task(renewal.renew([opened.renewal], stop))
        await until(lambda: len(protected) > 1, "the other credential is read")
        stop.set()
        await renewing
    assert protected == [{DEVICE}, {f"{DEVICE}:other"}]


@pytest.mark.heavy
@pytest.mark.guarantee(6)
def test_tokens_certificate_and_credentials_are_replaced_without_a_restart_and_no_broken_file_is_used(
    tmp_path: Path,
) -> None:
    tokens, credentials, authority = tmp_path / "tokens", tmp_path / "oscore", Authority(tmp_path)
    write(tokens, line("one"))
    certificate, _ = authority.issue("http.pem", 3600)
    credentials.mkdir()
    file, first = create_credential(credentials, DEVICE, relay=False)
    configuration = configured(tmp_path, f'[coap.oscore]\ncredentials_dir = "{credentials}"\n', coap="[::1]:0")
    section = f'[http]\ntoken_file = "{tokens}"\ntls_certificate = "{certificate}"\ntls_key = "{certificate}"'
    configuration.write_text(configuration.read_text().replace("[http]", section))
    with agent_process(configuration) as agent:
        agent.start()
        ports = wait_until_ready(agent)
        check_http(agent, ports["http"], tokens, authority)
        check_oscore(ports["coap"], tmp_path, file, first)
    assert first.secret.hex() not in (tmp_path / "agent.log").read_text()


def check_http(agent: Process, port: int, tokens: Path, authority: Authority) -> None:
    assert (status_of(port, "one"), status_of(port, "two")) == (200, 401)
    write(tokens, line("one") + line("two"))
    wait_until(lambda: status_of(port, "two") == 200, "both tokens count")
    assert status_of(port, "one") == 200
    write(tokens, "nonsense")
    agent.wait_for_log("secrets=unusable way=http")
    assert status_of(port, "two") == 200
    write(tokens, line("two"), 0o644)
    agent.wait_for_log("is open to others")
    assert status_of(port, "one") == 200
    tokens.chmod(0o640)
    wait_until(lambda: status_of(port, "one") == 401, "the former token counts no more")
    before = ssl.get_server_certificate(("127.0.0.1", port))
    authority.issue("http.pem", 3600)
    wait_until(lambda: ssl.get_server_certificate(("127.0.0.1", port)) != before, "the new certificate is shown")
    assert status_of(port, "two") == 200


def check_oscore(port: int, folder: Path, file: Path, first: Credential) -> None:
    one = sensor_folder(folder / "one", first)
    assert is_taken(one, port)
    file.rename(file.with_name("former.toml"))
    _, second = create_credential(file.parent, DEVICE, relay=False)
    two = sensor_folder(folder / "two", second)
    wait_until(lambda: is_taken(two, port), "both credentials count")
    assert is_taken(one, port)
    file.with_name("former.toml").unlink()
    wait_until(lambda: not is_taken(one, port), "the former credential counts no more")
    assert is_taken(two, port)


def is_taken(folder: Path, port: int) -> bool:
    """Whether a sensor's event is taken; aiocoap fails on an answer that is not protected."""
    with suppress(AssertionError):
        return posted_by_aiocoap(folder, port, [b"\xa2\x62id\x02\x64data\xa1\x61x\x01"]) == ["2.04 "]
    return False
