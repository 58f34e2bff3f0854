"""`oncegate send --credentials`: OSCORE against a running agent that requires it, and against peers that pretend."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.cli.sensor import credentials
from agent.cli.sensor.protection import NUMBER_SUFFIX, SensorSecrets
from agent.coap import message
from simulators.services import ports
from tests.agent.cli.running import Completed, RunningAgent
from tests.agent.cli.sensor.test_coap_client import Address, answer, peer
from tests.support.agent_process import agent_process, configured

DEVICE = "urn:dev:mac:00158d0001a2b3c4"
OTHER = "urn:dev:mac:00158d0001a2b3c5"
FILE = "sensor.json"
EVENT = ("temperature=21.5", "--device", DEVICE, "--id", "17")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningAgent]:
    """Run an agent that requires OSCORE; the sensor's credentials are in FILE beside its configuration."""
    folder = tmp_path_factory.mktemp("gateway")
    (coap_port,), (http_port,) = ports.free(1, socket.SOCK_DGRAM), ports.free(1)
    (folder / "credentials").mkdir()
    options = f'[coap.oscore]\ncredentials_dir = "{folder}/credentials"\nrequired = true\n'
    file = configured(folder, options, coap=f"127.0.0.1:{coap_port}", http=f"127.0.0.1:{http_port}")
    running = RunningAgent(file, coap_port, http_port)
    for device, name in ((DEVICE, FILE), (OTHER, "other.json")):
        write(folder / name, running.oncegate("credentials", device).stdout)
    with agent_process(running.configuration) as agent:
        agent.start()
        agent.wait_for_log("agent=ready")
        yield running


def write(file: Path, text: str) -> None:
    with open(file, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as opened:
        opened.write(text)


def send(gateway: RunningAgent, *words: str, file: Path | None = None) -> tuple[int, list[dict[str, Any]], str]:
    file = file or gateway.configuration.with_name(FILE)
    done = gateway.oncegate("send", "--json", *words, "--credentials", str(file))
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_a_protected_event_is_accepted_once_and_only_the_first_request_is_challenged(gateway: RunningAgent) -> None:
    status, results, _ = send(gateway, *EVENT, "--repeat", "3")
    assert (status, [one["outcome"] for one in results]) == (0, ["accepted", "duplicate", "duplicate"])
    assert [one["transmissions"] for one in results] == [2, 1, 1]
    number = gateway.configuration.with_name(FILE + NUMBER_SUFFIX)
    used = int(number.read_text().split()[0])
    status, (result,), _ = send(gateway, *EVENT[:-1], "18", "--format", "cbor")
    assert (status, result["outcome"], result["code"]) == (0, "accepted", "2.04")
    assert int(number.read_text().split()[0]) > used


def test_the_device_is_the_one_of_the_credentials(gateway: RunningAgent) -> None:
    status, (result,), _ = send(gateway, "a=1", "--device", OTHER, "--id", "1")
    assert (status, result["outcome"], result["code"]) == (1, "refused", "4.03")


def test_another_secret_is_refused(gateway: RunningAgent, tmp_path: Path) -> None:
    secrets = json.loads(gateway.configuration.with_name(FILE).read_text())
    write(tmp_path / FILE, json.dumps(secrets | {"secret_hex": "00" * 16}))
    number = gateway.configuration.with_name(FILE + NUMBER_SUFFIX)
    if number.exists():  # with a lower number the request would be refused as a replay, before it is decrypted
        (tmp_path / number.name).write_text(number.read_text())
    status, (result,), _ = send(gateway, *EVENT, file=tmp_path / FILE)
    assert (status, result["outcome"], result["reason"]) == (1, "refused", "Decryption failed")


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        *((b"", "not protected by OSCORE"), (b"\xff{}", "not protected by OSCORE")),
        (b"\x90\xff" + bytes(20), "cannot be decrypted"),  # with an empty option 9
    ],
)
def test_a_response_that_anybody_could_have_sent_stores_nothing(
    gateway: RunningAgent, tail: bytes, reason: str
) -> None:
    def serve(sock: socket.socket, datagram: bytes, address: Address, number: int) -> None:
        answer(sock, datagram, address, 0x44, message.ACKNOWLEDGEMENT, tail)

    with peer(serve) as (target, _):
        status, (result,), _ = send(gateway, *EVENT, "--coap", f"127.0.0.1:{target.port}")
    assert (status, result["outcome"]) == (1, "refused")
    assert reason in result["reason"]


@pytest.mark.parametrize(
    ("text", "mode", "message"),
    [
        (None, 0o600, "No such file or directory"),
        ('{"secret_hex": "beef"}', 0o644, "others may read it (mode 644); run: chmod 600"),
        ("not JSON", 0o600, "expected the JSON that `oncegate credentials` has printed"),
        ("[" * 50_000, 0o600, "expected the JSON that `oncegate credentials` has printed"),
        ("[1]", 0o600, "expected the JSON that `oncegate credentials` has printed"),
        ('{"secret_hex": "beef"}', 0o600, "secret_hex: expected 16 to 64 bytes as hex digits"),
        ('{"secret_hex": 3}', 0o600, "secret_hex: expected 16 to 64 bytes as hex digits"),
        ('{"secret_hex": "' + "be" * 16 + '"}', 0o600, "sender-id_hex: expected 0 to 7 bytes as hex digits"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_without_its_secret(
    gateway: RunningAgent, tmp_path: Path, text: str | None, mode: int, message: str
) -> None:
    file = tmp_path / FILE
    if text is not None:
        write(file, text)
        file.chmod(mode)
    done = failed(gateway, file)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"oncegate: {file}: {message}")
    assert "beef" not in done.stderr
    assert "bebe" not in done.stderr


def failed(gateway: RunningAgent, file: Path, *words: str) -> Completed:
    return gateway.oncegate("send", *EVENT, "--credentials", str(file), *words)


def test_nothing_is_sent_where_no_number_can_be_kept(gateway: RunningAgent, tmp_path: Path) -> None:
    write(tmp_path / FILE, gateway.configuration.with_name(FILE).read_text())
    (tmp_path / (FILE + NUMBER_SUFFIX)).mkdir()
    done = failed(gateway, tmp_path / FILE)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"not a regular file: '{tmp_path / FILE}{NUMBER_SUFFIX}'" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def test_the_file_of_the_documented_command_can_be_used(gateway: RunningAgent, tmp_path: Path) -> None:
    example = credentials.EXAMPLES.splitlines()[1].replace("urn:dev:mac:00158d0001a2b3c4", "urn:example:documented")
    program = f'oncegate() {{ "{sys.executable}" -m agent.cli.main "$@"; }}; umask 022; cd "{tmp_path}"; {example}'
    environment = {**os.environ, "ONCEGATE_CONFIG": str(gateway.configuration), "PYTHONPATH": str(Path.cwd())}
    subprocess.run(["bash", "-c", program], env=environment, check=True)
    assert SensorSecrets.read(tmp_path / "sensor.json").sender_id


def test_credentials_are_for_coap(gateway: RunningAgent) -> None:
    done = failed(gateway, gateway.configuration.with_name(FILE), "--http", f"http://127.0.0.1:{gateway.http_port}")
    assert (done.returncode, "--credentials are for CoAP" in done.stderr) == (2, True)
