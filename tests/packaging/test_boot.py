"""The package on a booted machine: killed, hung, with a full disk, rebooted; no acked event is missing."""

import json
import socket
import subprocess
import urllib.error
import urllib.request
from hashlib import sha256
from pathlib import Path

import pytest

from agent.store.layout import FILE_NAME
from agent.store.read.events import read_packed
from agent.store.schema import database
from simulators import wire
from simulators.services import ports
from simulators.services.install import programs
from tests.packaging.machine import STATE_MEGABYTES, Machine
from tests.packaging.roots import Root
from tests.support.hanging import hung
from tests.support.waiting import wait_until

pytestmark = pytest.mark.heavy
TOKEN = "a token of thirty-two random bytes"
STATE = "/var/lib/oncegate"


class Sensor:
    """Sends events one after the other, and records which were acked."""

    def __init__(self, port: int) -> None:
        self._socket = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        self._socket.connect(("::1", port))
        self._socket.settimeout(1)
        self.next = 1
        self.acked: set[int] = set()

    def close(self) -> None:
        self._socket.close()

    def send(self, size: int = 0) -> str:
        """Send an event and return the answer's code; empty without one."""
        number, self.next = self.next, self.next + 1
        body = b'{"device":"urn:dev:mac:0000000000000001","id":%d,"data":{"x":"%s"}}' % (number, b"x" * size)
        try:
            self._socket.send(wire.Request(body, 50).datagram(number, number.to_bytes(4, "big")))
            message = wire.parse(self._socket.recv(2048))
        except (TimeoutError, ConnectionRefusedError):
            return ""
        assert message is not None
        if message.code_text == "2.04":
            self.acked.add(int.from_bytes(message.token, "big"))
        return message.code_text

    def send_until(self, code: str, size: int = 0) -> None:
        wait_until(lambda: self.send(size) == code, f"an event is answered with {code}", 300)


def post(port: int, token: str) -> int:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/v1/events",
        b'{"device":"urn:a","id":1}',
        {"Content-Type": "application/json", "Authorization": f"Bearer {token}"},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            status: int = answer.status
    except urllib.error.HTTPError as error:
        return error.code
    return status


def prepare(root: Root, package: Path, coap_port: int, http_port: int) -> None:
    root.install(package)
    file = root.path("/etc/oncegate/oncegate.toml")
    text = file.read_text().replace('# id = "gw1"', 'id = "gw1"').replace("# bootstrap_servers = ", "#")
    text = text.replace("[kafka]", '[kafka]\nbootstrap_servers = "127.0.0.1:1"')
    text = text.replace('# bind = "[::]:5683"', f'bind = "[::1]:{coap_port}"')
    text = text.replace('# bind = "127.0.0.1:8580"', f'bind = "127.0.0.1:{http_port}"')
    file.write_text(text.replace("# token_file =", 'token_file = "credential:tokens"'))
    tokens = root.path("/etc/oncegate/secrets/tokens")
    tokens.write_text(f"device urn:a sha256:{sha256(TOKEN.encode()).hexdigest()}\n")
    tokens.chmod(0o600)
    root.run("systemctl", "enable", "oncegate.service")
    impatient = root.path("/etc/systemd/system/oncegate.service.d/test.conf")
    impatient.parent.mkdir()
    impatient.write_text("[Service]\nWatchdogSec=10\n")


def stored_ids(machine: Machine, copy: Path) -> list[int]:
    """Copy the store out of the machine, and return the ids of its events."""
    copy.mkdir()
    for name in machine.run("ls", STATE).split():
        if name.startswith("events.db"):
            command = ["nsenter", "--target", str(machine.leader()), "--all", "cat", f"{STATE}/{name}"]
            (copy / name).write_bytes(subprocess.run(command, check=True, capture_output=True).stdout)
    connection = database.open_for_reading(copy / FILE_NAME)
    try:
        bodies = [json.loads(b"{" + event.tail + b"}") for event in read_packed(connection, 1, 1 << 40)]
    finally:
        connection.close()
    return [body["id"] for body in bodies if body["via"] == "coap"]


def test_whatever_happens_to_a_booted_gateway_no_acked_event_is_missing(
    root: Root, package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    programs.require("systemd-nspawn")
    (coap_port,), (http_port,) = ports.free(1, socket.SOCK_DGRAM), ports.free(1)
    prepare(root, package, coap_port, http_port)
    with Machine(root, tmp_path) as machine:
        sensor = Sensor(coap_port)
        try:
            _live(machine, sensor, http_port)
            machine.run("systemctl", "stop", "oncegate.service")
            ids = stored_ids(machine, tmp_path / "copy")
        finally:
            sensor.close()
            with capsys.disabled():
                print(f"\nboot: {machine.show('NRestarts')} restarts, {len(sensor.acked)} events acked")
    assert len(ids) == len(set(ids))
    assert sensor.acked <= set(ids)
    assert len(sensor.acked) > 40


def _live(machine: Machine, sensor: Sensor, http_port: int) -> None:
    """Kill, hang, fill and reboot the gateway, with events in between."""
    _send(sensor, 10)
    assert (post(http_port, TOKEN), post(http_port, "another")) == (200, 401)
    assert "gateway=gw1" in machine.run("journalctl", "--output=cat", "ONCEGATE_AGENT=ready")

    machine.kill_agent()
    wait_until(lambda: machine.show("NRestarts") == "1", "the killed agent is started again")
    machine.wait_until_up()
    _send(sensor, 10)

    with hung(machine.main_pid(), "store-writer"):
        wait_until(lambda: machine.show("Result") == "watchdog", "the watchdog ends the hung agent", 300)
    # Only after the detach can it be killed: a traced process cannot end.
    wait_until(lambda: machine.show("NRestarts") == "2", "the hung agent is started again", 300)
    machine.wait_until_up()
    assert "watchdog" in machine.run("journalctl", "--unit=oncegate.service", "--output=cat").lower()
    _send(sensor, 10)

    fill = f"head -c {STATE_MEGABYTES}M /dev/zero > {STATE}/filler"
    machine.run("sh", "-c", fill, check=False)
    sensor.send_until("5.03", size=900)
    machine.run("rm", f"{STATE}/filler")
    _send(sensor, 10)

    machine.reboot()
    _send(sensor, 10)


def _send(sensor: Sensor, count: int) -> None:
    for _ in range(count):
        sensor.send_until("2.04")
