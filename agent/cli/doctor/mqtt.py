"""Checks MQTT and its publishers: whether messages can be lost before they reach the agent."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from paho.mqtt.client import Client, MQTTMessage

from agent.cli.doctor.finding import Finding, fine, warning, wrong
from agent.cli.doctor.zigbee2mqtt import check_zigbee2mqtt
from agent.config.files import read_text
from agent.config.settings import MqttSettings
from agent.mqtt import client
from agent.mqtt.error import MqttError

ANSWER_SECONDS_MAX = 5.0
VERSION_TOPIC = "$SYS/broker/version"
MOSQUITTO_FILES = (Path("/etc/mosquitto/mosquitto.conf"), Path("/etc/mosquitto/conf.d"))
AUTOSAVE_SECONDS_MAX = 60
_LOCAL = {"localhost", "127.0.0.1", "::1"}


def check_mqtt(settings: MqttSettings, gateway: str, files: tuple[Path, ...] = MOSQUITTO_FILES) -> Iterator[Finding]:
    """Check the broker and its publishers."""
    info = f"{settings.base_topic}/bridge/info"
    wanted = [VERSION_TOPIC, *([info] if settings.base_topic else [])]
    try:
        retained = _read_retained(settings, gateway, wanted)
    except MqttError as error:
        yield wrong("mqtt", str(error), "check mqtt.host, mqtt.port, mqtt.username, mqtt.password_file and mqtt.tls")
        return
    version = retained.get(VERSION_TOPIC, b"").decode(errors="replace")
    yield fine("mqtt", f"{settings.host}:{settings.port} answers{f' ({version})' if version else ''}")
    if not version or version.startswith("mosquitto"):
        yield from _check_mosquitto(settings, files)
    if settings.base_topic:
        yield from check_zigbee2mqtt(retained.get(info), settings.base_topic)


def _read_retained(settings: MqttSettings, gateway: str, topics: list[str]) -> dict[str, bytes]:
    """Return the retained messages of some topics, read in a separate session; raise MqttError."""
    retained: dict[str, bytes] = {}
    refused: list[str] = []
    done, subscribed = threading.Event(), threading.Event()

    def on_connect(connected: Client, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            refused.append(f"{settings.host}:{settings.port} refuses the connection: {reason}")
            done.set()
        else:
            connected.subscribe([(topic, 0) for topic in topics])

    def on_subscribe(connected: Client, data: Any, message_id: int, reasons: Any, properties: Any) -> None:
        subscribed.set()

    def on_message(connected: Client, data: Any, message: MQTTMessage) -> None:
        retained[message.topic] = bytes(message.payload)
        if len(retained) == len(topics):
            done.set()

    listener = client.connect_separately(settings, gateway)
    listener.on_connect, listener.on_subscribe, listener.on_message = on_connect, on_subscribe, on_message
    listener.loop_start()
    try:
        done.wait(ANSWER_SECONDS_MAX)
    finally:
        listener.disconnect()
        listener.loop_stop()
    if refused or not subscribed.is_set():
        raise MqttError(refused[0] if refused else f"{settings.host}:{settings.port} does not answer")
    return retained


def _check_mosquitto(settings: MqttSettings, files: tuple[Path, ...]) -> Iterator[Finding]:
    try:
        lines = [line for file in files for part in _parts(file) for line in read_text(part).splitlines()]
    except (OSError, UnicodeDecodeError):
        lines = []
    if settings.host not in _LOCAL or not lines:
        yield warning(
            "mosquitto",
            "its settings cannot be read from here; check that it keeps what it has acknowledged",
            "persistence true, autosave_interval 1, max_queued_messages 0 in mosquitto.conf: docs/zigbee2mqtt.md",
        )
        return
    words = (line.split(maxsplit=1) for line in lines if line.strip() and not line.lstrip().startswith("#"))
    yield from judge_mosquitto({pair[0]: pair[1].strip() if len(pair) > 1 else "" for pair in words})


def judge_mosquitto(given: Mapping[str, str]) -> Iterator[Finding]:
    """Check the settings of mosquitto.conf(5); absent ones have their defaults."""
    if given.get("persistence", "false") != "true":
        hint = "persistence true in mosquitto.conf"
        yield wrong(
            "mosquitto",
            "persistence is off: a restart of the broker loses the messages that it queues for the agent",
            hint,
        )
    else:
        yield fine("mosquitto", "persistence true")
    autosave = given.get("autosave_interval", "1800")
    if not autosave.isdigit() or not 0 < int(autosave) <= AUTOSAVE_SECONDS_MAX:
        text = f"autosave_interval {autosave}: a killed broker loses the messages since it last saved"
        yield warning("mosquitto", text, "autosave_interval 1 in mosquitto.conf")
    else:
        yield fine("mosquitto", f"autosave_interval {autosave}")
    queued = given.get("max_queued_messages", "1000")
    if queued != "0":
        text = f"max_queued_messages {queued}: while the agent is disconnected, the broker drops what exceeds it"
        yield warning("mosquitto", text, "max_queued_messages 0 in mosquitto.conf")
    else:
        yield fine("mosquitto", "max_queued_messages 0")


def _parts(file: Path) -> list[Path]:
    return sorted(file.glob("*.conf")) if file.is_dir() else [file] if file.exists() else []
