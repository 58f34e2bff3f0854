"""Passwords and TLS, with a real broker that requires them."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from agent.cli.doctor.mqtt import check_mqtt
from agent.config.settings import MqttSettings
from agent.config.subscriptions import Subscription
from agent.delivery import Media
from simulators.services.install import programs
from simulators.services.mosquitto import Mosquitto
from tests.agent.mqtt.gateway import GATEWAY, Recorder, running
from tests.docs.pages import ROOT, blocks
from tests.support.logins.certificates import Authority
from tests.support.waiting import wait_until

EVENTS = (Subscription("plant/{device}", Media.JSON),)


async def _until_logged(caplog: pytest.LogCaptureFixture, text: str) -> None:
    await asyncio.to_thread(wait_until, lambda: text in caplog.text, f"{text!r} in the log")


async def test_the_password_comes_from_its_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    passwords, password = tmp_path / "passwords", tmp_path / "password"
    _run("mosquitto_passwd", "-b", "-c", str(passwords), "gw", "right")
    password.write_text("wrong\n")
    with Mosquitto(tmp_path / "broker", ("allow_anonymous false", f"password_file {passwords}")) as broker:
        async with running(Recorder(), broker.port, username="gw", password_file=password, subscriptions=EVENTS):
            await _until_logged(caplog, "refuses the connection")
            password.write_text("right\n")
            await _until_logged(caplog, "mqtt=connected")
    assert "right" not in caplog.text


async def test_the_rights_of_the_documentation_suffice_and_keep_a_sensor_to_its_own_topic(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, recorder: Recorder
) -> None:
    caplog.set_level("INFO")
    rights, passwords, password = tmp_path / "acl", tmp_path / "passwords", tmp_path / "password"
    (documented,) = blocks(ROOT / "docs" / "zigbee2mqtt.md", "acl")
    rights.write_text(documented.replace("/gw1/", f"/{GATEWAY}/"))
    password.write_text("right\n")
    for user, create in (("oncegate", ("-c",)), ("door", ())):
        _run("mosquitto_passwd", "-b", *create, str(passwords), user, "right")
    settings = ("allow_anonymous false", f"password_file {passwords}", f"acl_file {rights}")
    events = (Subscription("plant/{device}/events", Media.JSON),)
    with Mosquitto(tmp_path / "broker", settings) as broker:
        mqtt = MqttSettings(enabled=True, port=broker.port, username="oncegate", password_file=password)
        assert "persistence true" in str(await asyncio.to_thread(lambda: list(check_mqtt(mqtt, GATEWAY))))
        async with running(recorder, broker.port, username="oncegate", password_file=password, subscriptions=events):
            await _until_logged(caplog, "mqtt=connected")
            for device in ("window", "door"):
                topic = f"plant/{device}/events"
                to = ("-p", str(broker.port), "-h", "127.0.0.1", "-u", "door", "-P", "right", "-q", "1", "-t", topic)
                _run("mosquitto_pub", *to, "-m", "1")
            await recorder.until(deliveries=1)
    assert [delivery.sender for delivery in recorder.deliveries] == ["door"]


# paho leaves the socket of a failed handshake to the garbage collector, which warns of it.
@pytest.mark.filterwarnings("ignore:Exception ignored .*<ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning")
async def test_tls_checks_the_broker_and_shows_it_our_certificate(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    authority = Authority(tmp_path)
    (own, _), (of_broker, _) = (authority.issue(name, 3_600) for name in ("gw.pem", "broker.pem"))
    settings = (
        "allow_anonymous true",
        "require_certificate true",
        f"cafile {authority.file}",
        f"certfile {of_broker}",
        f"keyfile {of_broker}",
    )
    with Mosquitto(tmp_path / "broker", settings) as broker:
        async with running(Recorder(), broker.port, tls=True, subscriptions=EVENTS):
            await _until_logged(caplog, "CERTIFICATE_VERIFY_FAILED")
        recorder = Recorder()
        async with running(
            recorder,
            broker.port,
            tls=True,
            tls_ca_file=authority.file,
            tls_certificate_file=own,
            tls_key_file=own,
            subscriptions=EVENTS,
        ):
            await _until_logged(caplog, "mqtt=connected")
            await asyncio.to_thread(_publish, broker, tmp_path, 200)
            await recorder.until(deliveries=200)
    assert recorder.bodies == [b"%d" % number for number in range(200)]


def _publish(broker: Mosquitto, certificates: Path, count: int) -> None:
    """Publish with mosquitto's own client, which shares no code with the agent."""
    files = ("--cafile", "ca.pem", "--cert", "gw.pem", "--key", "gw.pem")
    lines = "\n".join(str(number) for number in range(count))
    to = ("-p", str(broker.port), "-h", "127.0.0.1", "-q", "1", "-t", "plant/a", "-l")
    _run("mosquitto_pub", *files, *to, folder=certificates, text=lines)


def _run(program: str, *arguments: str, folder: Path | None = None, text: str = "") -> None:
    command = [programs.require(program), *arguments]
    subprocess.run(command, cwd=folder, input=text, text=True, capture_output=True, check=True)
