"""Checks MQTT and its publishers: whether messages can be lost before they reach the agent."""

import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from paho.mqtt.client import Client, MQTTMessage

from agent.cli.doctor.files import LOCAL
from agent.cli.doctor.finding import Finding, fine, warning, wrong
from agent.cli.status import sessions_lost
from agent.config.files import read_text
from agent.config.settings import MqttSettings, Settings
from agent.config.subscriptions import UNIDENTIFIED
from agent.mqtt import client
from agent.mqtt.packets import MqttError
from agent.mqtt.routes import UNCONFIRMED
from agent.status import GatewayStatus, read_status

ANSWER_SECONDS_MAX = 5.0
RETAINED_SECONDS_MAX = 2.0
"""How long after a subscription its retained message may arrive."""
MESSAGES_MAX = 1_000
VERSION_TOPIC = "$SYS/broker/version"
MOSQUITTO_PORT = 1883
"""Without a listener in its settings."""
AUTOSAVE_SECONDS_MAX = 60
SESSION_LOST_SECONDS = 7 * 86_400
"""For how long a lost session is a warning."""
_INCLUDES_MAX = 100


def check(settings: Settings, now: int) -> Iterator[Finding]:
    """Check the broker, its publishers, and the agent's session."""
    yield from check_mqtt(settings.mqtt, settings.gateway.id)
    with suppress(PermissionError):  # reported by the check `store`
        yield from check_session(read_status(settings.gateway.state_dir, settings.gateway.id), now)


def check_mqtt(settings: MqttSettings, gateway: str) -> Iterator[Finding]:
    """Check the broker and its publishers."""
    base = settings.base_topic
    try:
        info = _read_retained(settings, gateway, f"{base}/bridge/info") if base else None
        # In a connection of its own: some brokers close one that asks for this.
        version = (_read_retained(settings, gateway, VERSION_TOPIC) or b"").decode(errors="replace")
    except MqttError as error:
        hint = "check mqtt.host, mqtt.port, mqtt.username, mqtt.password_file and mqtt.tls"
        if "protocol version" in str(error):
            hint = 'mqtt.version = "3.1.1"'
        yield wrong("mqtt", str(error), hint)
        return
    yield fine("mqtt", f"{settings.host}:{settings.port} answers{f' ({version})' if version else ''}")
    if version.startswith("mosquitto"):
        yield from _check_mosquitto(settings)
    else:
        text = f"{version or 'unknown broker'}: does it keep QoS 1 sessions on disk?"
        yield warning("mqtt", text, "if not, its restart loses what it has queued: docs/zigbee2mqtt.md, Brokers")
    if base:
        yield from check_zigbee2mqtt(info, base)
    if settings.subscriptions:
        yield from _check_publishers(settings, gateway)


def check_session(status: GatewayStatus, now: int) -> Iterator[Finding]:
    """Check whether the broker has kept the agent's session."""
    if status.mqtt_session_lost_at is not None and now - status.mqtt_session_lost_at < SESSION_LOST_SECONDS * 1000:
        text = f"{sessions_lost(status)}, and with it the messages that it had queued"
        yield warning("mqtt", text, "docs/runbook.md, OncegateMqttSessionLost")


def _check_publishers(settings: MqttSettings, gateway: str) -> Iterator[Finding]:
    """Check the mappings of [[mqtt.subscriptions]], and the retained or arriving messages."""
    messages = _listen(settings, gateway, [one.filter for one in settings.subscriptions], MESSAGES_MAX)
    for subscription in settings.subscriptions:
        seen = [message for message in messages if subscription.matches(message.topic)]
        if not subscription.identifies:
            yield warning("mqtt", f"{subscription.topic}: {UNIDENTIFIED}", "docs/mappings.md, What identifies an event")
        if any(message.qos == 0 for message in seen):
            hint = "set QoS 1 in its publisher, where it can: docs/mappings.md"
            yield warning("mqtt", f"{subscription.topic} comes at QoS 0: {UNCONFIRMED}", hint)
        if any(message.retain for message in seen):
            yield fine("mqtt", f"{subscription.topic}: what is retained is state; events are what comes from now on")


def _read_retained(settings: MqttSettings, gateway: str, topic: str) -> bytes | None:
    """Return a topic's retained message, as `_listen` does; None where there is none."""
    return next((bytes(message.payload) for message in _listen(settings, gateway, [topic], 1)), None)


def _listen(settings: MqttSettings, gateway: str, filters: Sequence[str], messages_max: int) -> list[MQTTMessage]:
    """Return what a separate session receives within a moment; raise MqttError where the broker refuses it.

    Nothing where the broker does not let it be read.
    """
    found: list[MQTTMessage] = []
    answers: list[str] = []
    subscribed, done = threading.Event(), threading.Event()

    def end() -> None:
        subscribed.set()
        done.set()

    def on_connect(connected: Client, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        answers.append(f"refuses the connection: {reason}" if reason.is_failure else "")
        if reason.is_failure:
            end()
        else:
            connected.subscribe([(one, 1) for one in filters])

    def on_subscribe(connected: Client, data: Any, message_id: int, reasons: Any, properties: Any) -> None:
        subscribed.set()
        if all(reason.is_failure for reason in reasons):
            done.set()

    def on_message(connected: Client, data: Any, message: MQTTMessage) -> None:
        found.append(message)
        if len(found) >= messages_max:
            end()

    listener = client.connect_separately(settings, gateway)
    listener.on_connect, listener.on_subscribe = on_connect, on_subscribe
    listener.on_message, listener.on_disconnect = on_message, lambda *_: end()
    listener.loop_start()
    try:
        if subscribed.wait(ANSWER_SECONDS_MAX):
            done.wait(RETAINED_SECONDS_MAX)
    finally:
        listener.disconnect()
        listener.loop_stop()
    if problem := "does not answer" if not answers else answers[0]:
        raise MqttError(f"{settings.host}:{settings.port} {problem}")
    return found[:messages_max]


def _check_mosquitto(settings: MqttSettings) -> Iterator[Finding]:
    """Check the settings of the mosquitto that serves this port, by the file that its process was started with."""
    for root, file in _mosquitto_files() if settings.host in LOCAL else ():
        try:
            lines = _lines(root, file)
        except (OSError, UnicodeDecodeError):
            continue
        ports = [words[1] for words in lines if words[0] in ("listener", "port") and len(words) > 1]
        if str(settings.port) in (ports or [str(MOSQUITTO_PORT)]):
            yield from judge_mosquitto({words[0]: " ".join(words[1:]) for words in lines}, str(file))
            return
    text = "its settings cannot be read from here; check that it keeps what it has acknowledged"
    hint = "persistence true, autosave_interval 1, max_queued_messages 0 in mosquitto.conf: docs/zigbee2mqtt.md"
    yield warning("mosquitto", text, hint)


def _mosquitto_files() -> Iterator[tuple[Path, Path]]:
    """Yield the root folder and the settings file of each mosquitto that runs on this machine, containers included."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            program, *options = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:  # it has ended
            continue
        if Path(program).name == "mosquitto" and {"-c", "--config-file"} & set(options[:-1]):
            at = next(place for place, word in enumerate(options) if word in ("-c", "--config-file"))
            root, file = process / "root", Path(options[at + 1])
            if file.is_absolute():
                yield root if os.access(root, os.X_OK) else Path("/"), file


def _lines(root: Path, file: Path) -> list[list[str]]:
    """Return the words of each setting, those of included files in their place."""
    found: list[list[str]] = []
    for line in read_text(root / file.relative_to("/")).splitlines():
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if words[0] == "include_dir" and len(words) > 1:
            folder = Path(words[1])
            parts = sorted((root / folder.relative_to("/")).glob("*.conf"))[:_INCLUDES_MAX]
            found += [setting for part in parts for setting in _lines(root, folder / part.name)]
        else:
            found.append(words)
    return found


def judge_mosquitto(given: Mapping[str, str], file: str) -> Iterator[Finding]:
    """Check the settings of mosquitto.conf(5), read from a file; absent ones have their defaults."""
    if given.get("persistence", "false") != "true":
        text = "persistence is off: a restart of the broker loses the messages that it queues for the agent"
        yield wrong("mosquitto", text, f"persistence true in {file}")
    else:
        yield fine("mosquitto", f"persistence true ({file})")
    autosave = given.get("autosave_interval", "1800")
    if not autosave.isdigit() or not 0 < int(autosave) <= AUTOSAVE_SECONDS_MAX:
        text = f"autosave_interval {autosave}: a killed broker loses the messages since it last saved"
        yield warning("mosquitto", text, f"autosave_interval 1 in {file}")
    else:
        yield fine("mosquitto", f"autosave_interval {autosave} ({file})")
    queued = given.get("max_queued_messages", "1000")
    if queued != "0":
        text = f"max_queued_messages {queued}: while the agent is disconnected, the broker drops what exceeds it"
        yield warning("mosquitto", text, f"max_queued_messages 0 in {file}")
    else:
        yield fine("mosquitto", f"max_queued_messages 0 ({file})")


_NAMED_MAX = 3
"""Devices that a finding names."""


def check_zigbee2mqtt(info: bytes | None, base: str) -> Iterator[Finding]:
    """Check Zigbee2MQTT's configuration, as it publishes it; the last finding has the lines that correct all."""
    try:
        config = json.loads(info or b"")["config"]
        advanced, options = dict(config.get("advanced", {})), dict(config.get("device_options", {}))
        devices = {str(address): dict(device) for address, device in dict(config.get("devices", {})).items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        hint = 'start Zigbee2MQTT, compare mqtt.base_topic; without Zigbee2MQTT set it to ""'
        yield warning("zigbee2mqtt", f"it has published nothing in {base}/bridge/info", hint)
        return
    lines: dict[str, list[str]] = {"advanced": [], "device_options": [], "devices": []}
    seen = advanced.get("last_seen", "disable")
    if seen not in ("epoch", "ISO_8601"):
        lines["advanced"].append("last_seen: epoch")
        text = f"advanced.last_seen is {seen}: a message that is delivered twice becomes two events"
        yield warning("zigbee2mqtt", text)
    else:
        yield fine("zigbee2mqtt", f"advanced.last_seen is {seen}")
    if advanced.get("output", "json") == "attribute":
        lines["advanced"].append("output: json")
        yield wrong("zigbee2mqtt", "advanced.output is attribute, which is not read")
    if advanced.get("cache_state_send_on_startup", True):
        lines["advanced"].append("cache_state_send_on_startup: false")
        yield warning("zigbee2mqtt", "at its start it publishes cached states, which look like new events")
    yield _check_qos(options.get("qos", 0), devices, lines)
    if any(lines.values()):
        text = "its configuration.yaml lacks these lines, each in the section of this name; restart it afterwards"
        sections = (f"{name}:\n  " + "\n  ".join(entries) for name, entries in lines.items() if entries)
        yield warning("zigbee2mqtt", text, "\n".join(sections))


def _check_qos(qos: object, devices: Mapping[str, Mapping[str, Any]], lines: dict[str, list[str]]) -> Finding:
    """Check the QoS of all devices, and add the lines that raise it."""
    names = {address: str(device.get("friendly_name", address)) for address, device in devices.items()}
    own = sorted((address for address in devices if devices[address].get("qos") == 0), key=names.__getitem__)
    lines["devices"] += [f"'{address}':\n    qos: 1" for address in own]
    if qos != 0 and not own:
        return fine("zigbee2mqtt", f"device_options.qos is {qos}")
    if qos == 0:
        lines["device_options"].append("qos: 1")
    some = ", ".join(names[address] for address in own[:_NAMED_MAX]) + (" and others" if len(own) > _NAMED_MAX else "")
    who = "all devices" if qos == 0 else some
    text = f"QoS 0 for {who}: the broker keeps none of its messages while the agent is disconnected"
    return wrong("zigbee2mqtt", text)
