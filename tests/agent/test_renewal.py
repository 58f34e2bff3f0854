"""Secrets that are replaced while a whole agent runs."""

from __future__ import annotations

import ssl
from contextlib import suppress
from hashlib import sha256
from http.client import HTTPSConnection
from pathlib import Path

import pytest

from agent.coap.oscore.credentials import Credential, create_credential
from simulators.services.process import Process
from tests.agent.coap.oscore.protected import posted_by_aiocoap, sensor_folder
from tests.support.agent_process import agent_process, configured, wait_until_ready
from tests.support.logins.certificates import Authority
from tests.support.waiting import wait_until

DEVICE = "urn:dev:mac:00158d0001a2b3c4"


def write(file: Path, text: str) -> None:
    """Replace a secret as one should: by renaming a whole file."""
    new = file.with_name(f"{file.name}.new")
    new.touch(0o640)
    new.write_text(text)
    new.replace(file)


def status_of(port: int, token: str) -> int:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = HTTPSConnection("127.0.0.1", port, timeout=30, context=context)
    fields = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    connection.request("POST", "/api/v1/events", b'{"device":"%s","id":1,"data":{}}' % DEVICE.encode(), fields)
    try:
        return connection.getresponse().status
    finally:
        connection.close()


def line(token: str) -> str:
    return f"device {DEVICE} sha256:{sha256(token.encode()).hexdigest()}\n"


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
    write(tokens, line("two"))
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
