"""The agent as a real process with a real broker: a kill loses and doubles no message, with mappings and without."""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.status import read_status
from benchmarks.agent import programs
from simulators.services import ports
from simulators.services.install import jars, java
from simulators.services.mosquitto import Mosquitto
from simulators.services.process import Command, Process
from simulators.services.service import ProcessService
from tests.agent.mappings.payloads import PUBLISHED
from tests.agent.mqtt.agents import accepted, agent, rejected, stored
from tests.agent.mqtt.publisher import Publisher
from tests.support.waiting import wait_for_count

START_SECONDS_MAX = 60.0


class ForeignBroker(ProcessService):
    """A broker that syncs before each PUBACK; its settings, data and log are below one folder."""

    def __init__(self, port: int, settings_file: Path, settings: str, *command: str) -> None:
        self.port = port
        self._file, self._settings = settings_file, settings
        self.process = Process(Command(command[0], command, settings_file.parent / "broker.log"))

    def start(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(self._settings)
        self.process.start()
        self.process.wait_for_port(self.port, START_SECONDS_MAX)


def nats(folder: Path) -> ForeignBroker:
    """Return a NATS server; skip the test where it cannot be built."""
    port, own = ports.free(2)
    program, file = programs.nats_server(), folder / "nats.conf"
    if program is None:
        pytest.skip("NATS cannot be built here")
    settings = (
        f'server_name: "broker"\nlisten: "127.0.0.1:{own}"\nmqtt {{ listen: "127.0.0.1:{port}" }}\n'
        f'jetstream {{ store_dir: "{folder / "state"}", sync_interval: always }}\n'
    )
    return ForeignBroker(port, file, settings, str(program), "-c", str(file))


def artemis(folder: Path) -> ForeignBroker:
    """Return an ActiveMQ Artemis, which takes the journal's path from the folder of its settings."""
    (port,) = ports.free(1)
    settings = (
        '<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core"><security-enabled>false</security-enabled>'
        f'<acceptors><acceptor name="mqtt">tcp://127.0.0.1:{port}?protocols=MQTT</acceptor></acceptors>'
        "<journal-type>NIO</journal-type></core></configuration>"
    )
    classpath = ":".join(map(str, jars.paths(jars.ARTEMIS)))
    options = ("-Xmx256m", "-XX:+UseSerialGC", "-cp", classpath)
    main = "org.apache.activemq.artemis.core.server.embedded.Main"
    return ForeignBroker(port, folder / "etc/broker.xml", settings, str(java.require()), *options, main, str(folder))


MESSAGES = 2_000
KILLS = 4
START = 1_763_706_000_000
each_broker = pytest.mark.parametrize(
    "kept_by",
    ["mosquitto", *(pytest.param(name, marks=pytest.mark.heavy) for name in ("nats", "artemis"))],
    indirect=True,
)
DEVICES = json.dumps([{"friendly_name": "t1", "ieee_address": "0x00158d0001234567"}])


def _readings(first: int, last: int, noise: int = 0) -> list[tuple[str, bytes]]:
    """Create readings, each with this number of incompressible bytes."""
    reading = b'{"temperature":%d,"noise":"%s","linkquality":90,"last_seen":%d}'
    return [
        ("zigbee2mqtt/t1", reading % (number, random.randbytes(noise).hex().encode(), START + number))
        for number in range(first, last)
    ]


@dataclass(frozen=True, slots=True)
class Kept:
    """A broker that keeps its sessions below the folder `broker`."""

    broker: Mosquitto | ForeignBroker
    setting: str
    """The setting of the agent that it needs."""
    keeps_order: bool
    """Artemis delivers some messages late, to other clients, too, and so does NATS 2.15 to the agent after a kill."""


@pytest.fixture
def kept_by(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kept]:
    makers: dict[str, Callable[[Path], Mosquitto | ForeignBroker]] = {
        "mosquitto": Mosquitto,
        "nats": nats,
        "artemis": artemis,
    }
    with makers[request.param](tmp_path / "broker") as running:
        yield Kept(running, 'version = "3.1.1"\n' if request.param == "nats" else "", request.param == "mosquitto")


@pytest.mark.guarantee(1)
@each_broker
def test_sigkill_of_agent_and_broker_loses_no_message_and_doubles_none(kept_by: Kept, tmp_path: Path) -> None:
    broker, setting = kept_by.broker, kept_by.setting
    seed = random.randrange(1 << 32)
    print(f"seed={seed}")
    moments = random.Random(seed)
    with agent(tmp_path, broker.port, setting) as process:
        with Publisher(broker.port) as publisher:
            publisher.publish("zigbee2mqtt/bridge/devices", DEVICES, retain=True)
            process.start()
            process.wait_for_log("mqtt=connected")
            publisher.publish_all(_readings(0, MESSAGES // 2))
            process.kill()
            publisher.publish_all(_readings(MESSAGES // 2, MESSAGES))
        if isinstance(broker, Mosquitto):
            broker.stop()  # SIGKILL would lose what it has not saved yet
        broker.kill()
        broker.start()
        process.start()
        for kill in range(1, KILLS + 1):
            enough = MESSAGES * kill // (KILLS + 1) + moments.randrange(100)
            wait_for_count(lambda: accepted(tmp_path), enough, "some are stored", or_more=True)
            killed = process if kill % 2 else broker
            killed.kill()
            killed.start()
        wait_for_count(lambda: accepted(tmp_path), MESSAGES, "all are stored")
        process.terminate()
        assert read_status(tmp_path / "state", "gw1").mqtt_sessions_lost == 0
        broker.stop()
        shutil.rmtree(tmp_path / "broker")
        broker.start()
        process.start()
        process.wait_for_log("mqtt=session-lost")
        process.terminate()
    assert read_status(tmp_path / "state", "gw1").mqtt_sessions_lost == 1
    events = stored(tmp_path)
    times = [int(str(event["time"])) for event in events]
    assert (times if kept_by.keeps_order else sorted(times)) == list(range(START, START + MESSAGES))
    assert {str(event["device"]) for event in events} == {"urn:dev:mac:00158d0001234567"}
    assert {str(event["via"]) for event in events} == {"zigbee2mqtt"}


@pytest.mark.guarantee(3)
@each_broker
def test_a_full_store_leaves_the_rest_with_the_broker(kept_by: Kept, tmp_path: Path) -> None:
    broker, setting = kept_by.broker, kept_by.setting
    with (
        agent(tmp_path, broker.port, f'{setting}[store]\nmax_bytes = "300KiB"\n') as process,
        Publisher(broker.port) as publisher,
    ):
        publisher.publish("zigbee2mqtt/bridge/devices", DEVICES, retain=True)
        process.start()
        process.wait_for_log("mqtt=connected")
        publisher.publish_all(_readings(0, MESSAGES, noise=500))
        process.wait_for_log("the store is full")
        assert process.terminate() == 0
    assert 0 < accepted(tmp_path) < MESSAGES
    with agent(tmp_path, broker.port, setting) as process:
        process.start()
        wait_for_count(lambda: accepted(tmp_path), MESSAGES, "all are stored")
        assert process.terminate() == 0
    assert sorted(int(str(event["time"])) for event in stored(tmp_path)) == list(range(START, START + MESSAGES))


CONFIGURATION = """
[[mqtt.subscriptions]]
topic = "application/+/device/+/event/+"
format = "chirpstack-v4"
[[mqtt.subscriptions]]
topic = "tele/+/SENSOR"
format = "tasmota"
[[mqtt.subscriptions]]
topic = "plant/+"
format = "acme"
[[mqtt.subscriptions]]
topic = "json/{device}"
format = "json"
[[mappings]]
name = "acme"
each = "body.readings"
skip = "item.kind == 'state'"
device = "plant:{topic[1]}"
id = "item.n"
data = { level = "item.v" }
"""
UPLINK, JOIN = PUBLISHED[0], PUBLISHED[2]
TASMOTA = "tele/kitchen/SENSOR"


@pytest.mark.guarantee(1, 2)
def test_payloads_are_events_once_though_they_come_twice_and_agent_and_broker_end(
    broker: Mosquitto, publisher: Publisher, tmp_path: Path
) -> None:
    wrong = b'{"id":1,"wrong":2}'
    publisher.publish("zigbee2mqtt/bridge/devices", DEVICES, retain=True)
    readings = b'{"readings":[{"n":1,"v":7},{"kind":"state"},{"n":2,"v":8},{"n":3}]}'
    with agent(tmp_path, broker.port, CONFIGURATION) as process:
        process.start()
        process.wait_for_log("mqtt=connected")
        for _ in range(2):  # the same uplink, heard by two LoRa gateways and published twice
            publisher.publish(UPLINK.topic, UPLINK.body.encode())
        publisher.publish(JOIN.topic, JOIN.body.encode())
        publisher.publish("zigbee2mqtt/t1", b"{")
        publisher.publish("json/urn:dev:ow:1", wrong)
        publisher.publish("plant/7", readings)
        wait_for_count(lambda: accepted(tmp_path), 3, "they are stored")
        process.kill()
        publisher.publish(TASMOTA, b'{"Time":"2026-03-24T20:17:07","AM2301":{"Temperature":24.6},"TempUnit":"C"}')
        publisher.publish("plant/7", readings)
        broker.stop()  # one that is killed has lost what came in its last second: docs/zigbee2mqtt.md
        broker.start()
        process.start()
        wait_for_count(lambda: accepted(tmp_path), 4, "the one that came meanwhile is stored")
        process.terminate()
    assert UPLINK.event is not None
    uplink = UPLINK.event
    assert [(event["device"], event["id"], event["data"]) for event in stored(tmp_path)] == [
        (uplink["device"], uplink["id"], uplink["data"]),
        ("plant:7", 1, {"level": 7}),
        ("plant:7", 2, {"level": 8}),
        ("tasmota:kitchen", "2026-03-24T20:17:07", {"AM2301": {"Temperature": 24.6}}),
    ]
    assert {str(event["via"]) for event in stored(tmp_path)} == {"mqtt"}
    reasons = {(device, raw): reason for device, reason, raw in rejected(tmp_path)}
    assert reasons.pop(("urn:dev:mac:00158d0001234567", b"{"))
    assert "unknown field 'wrong'" in reasons.pop(("urn:dev:ow:1", wrong))
    assert set(reasons.values()) == {"mapping acme: data: yields nothing"}
