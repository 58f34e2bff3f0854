"""The package on a booted machine: killed, hung, with a full disk, rebooted; no acked event is missing."""

import socket
import subprocess
import urllib.error
import urllib.request
from hashlib import sha256
from pathlib import Path

import pytest

from simulators.services import ports
from simulators.services.install import programs
from tests.packaging import roots
from tests.packaging.following import version_up
from tests.packaging.machine import INSTALLATION_SECONDS_MAX, STATE_MEGABYTES, Machine
from tests.packaging.roots import Root
from tests.packaging.sensor import Sensor, ids_in
from tests.support.hanging import hung
from tests.support.waiting import wait_until

pytestmark = pytest.mark.heavy
TOKEN = "a token of thirty-two random bytes"
STATE = "/var/lib/oncegate"


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
    root.configure()
    roots.bind(root, coap_port, http_port)
    file = root.path("/etc/oncegate/oncegate.toml")
    text = file.read_text()
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
    return ids_in(copy)


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


def test_a_full_store_survives_a_kill_an_upgrade_a_removal_and_a_purge(
    root: Root, package: Path, tmp_path: Path
) -> None:
    programs.require("systemd-nspawn")
    (coap_port,), (http_port,) = ports.free(1, socket.SOCK_DGRAM), ports.free(1)
    prepare(root, package, coap_port, http_port)
    roots.limit_store(root)
    following = version_up(package, tmp_path).read_bytes()
    root.path("/root/following.deb").write_bytes(following)
    root.path("/root/broken.deb").write_bytes(following[: len(following) // 2])
    with Machine(root, tmp_path) as machine:
        sensor = Sensor(coap_port)
        try:
            sensor.send_until("5.03", size=900)
            machine.kill_agent()
            wait_until(lambda: machine.show("NRestarts") == "1", "the killed agent is started again", 300)
            machine.wait_until_up()
            wait_until(lambda: "cannot store" in machine.show("StatusText"), "systemd shows why nothing is stored", 300)
            with hung(machine.main_pid(), "store-writer"):
                wait_until(lambda: machine.show("Result") == "watchdog", "the watchdog ends the hung agent", 300)
            wait_until(lambda: machine.show("NRestarts") == "2", "the hung agent is started again", 300)
            machine.wait_until_up()
            before = machine.main_pid()
            broken = machine.run("sh", "-c", "dpkg -i /root/broken.deb 2>&1 || echo failed")
            assert "failed" in broken, broken
            machine.wait_until_up()
            assert before != (restarted := machine.main_pid())  # prerm has stopped it
            assert "0." in machine.run("dpkg-query", "-W", "oncegate")
            install = ("dpkg", "--force-confdef", "--force-confold", "-i", "/root/following.deb")
            machine.run(*install, seconds_max=INSTALLATION_SECONDS_MAX)
            machine.wait_until_up()
            assert machine.main_pid() != restarted
            assert "9." in machine.run("dpkg-query", "-W", "oncegate")
            assert sensor.send_again(1) == "2.04"  # a duplicate needs no space
            sensor.send_until("5.03", size=900)
        finally:
            sensor.close()
        machine.run("dpkg", "-r", "oncegate", seconds_max=INSTALLATION_SECONDS_MAX)
        assert machine.show("ActiveState") == "inactive"
        machine.run("dpkg", "-P", "oncegate", seconds_max=INSTALLATION_SECONDS_MAX)
        ids = stored_ids(machine, tmp_path / "copy")
    assert len(ids) == len(set(ids))
    assert sensor.acked <= set(ids)
    assert len(sensor.acked) > 1_000
