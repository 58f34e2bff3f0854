"""The compared gateways: all processes that lose power together, and the far end that an uplink leads to."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion

from benchmarks.agent import contenders, loads, thingsboard
from benchmarks.losses import destinations, idempotent_gateway, sensors
from simulators.services import ports
from simulators.services.kafka.broker import Broker
from simulators.services.mosquitto import Mosquitto
from simulators.services.process import Command, Process

Address = tuple[str, int]
_HOST = "127.0.0.1"
EACH_CHANGE = ("allow_anonymous true", "autosave_on_changes true")
"""The settings with which mosquitto keeps the most: it saves its state after every change, not after each second."""
EACH_SECOND = ("allow_anonymous true",)


class Gateway(Protocol):
    """A gateway with its uplink."""

    def start(self) -> None:
        """Start the gateway's processes, and return once they listen."""

    def kill(self) -> None:
        """End them by SIGKILL, as a power failure does."""

    def uplink(self, *, up: bool) -> None:
        """Make the far end reachable or unreachable."""

    def send(self, number: int, again: int, *, cut: bool) -> bool:
        """Send an event once; return whether the sensor has received the acknowledgement.

        With `cut`, the response is lost. Raise OSError where there is none.
        """

    def arrived(self) -> Counter[int]:
        """Count what has arrived at the far end, by the events' numbers."""


class OverKafka:
    """A gateway in front of a Kafka broker, of services that are started in order and killed together.

    `attempt` sends as `Gateway.send` does.
    """

    def __init__(
        self,
        broker: Broker,
        topic: str,
        *services: Process | Mosquitto,
        wait: Callable[[], None],
        attempt: Callable[[int, int, bool], bool],
    ) -> None:
        self._broker, self._topic, self._services, self._wait, self._attempt = broker, topic, services, wait, attempt
        broker.create_topics(topic)

    def start(self) -> None:
        for service in self._services:
            service.start()
        self._wait()

    def kill(self) -> None:
        for service in self._services:
            service.kill()

    def uplink(self, *, up: bool) -> None:
        self._broker.start() if up else self._broker.stop()

    def send(self, number: int, again: int, *, cut: bool) -> bool:
        return self._attempt(number, again, cut)

    def arrived(self) -> Counter[int]:
        return destinations.topic(self._broker.bootstrap_servers, self._topic)


def oncegate(folder: Path, broker: Broker) -> Gateway:
    """Return the agent with CoAP sensors, and exactly-once delivery for a reader without the job."""
    (port,) = ports.free(1)
    settings = (
        f'[coap]\nbind = "{_HOST}:{port}"\n[http]\nenabled = false\n[kafka]\ntopic = "oncegate"\n'
        f'bootstrap_servers = "{broker.bootstrap_servers}"\ndelivery = "exactly-once"\n'
    )
    process = contenders.agent(folder, "gw", settings)
    return OverKafka(
        *(broker, "oncegate", process),
        wait=lambda: process.wait_for_log(contenders.AGENT_READY),
        attempt=lambda number, _, cut: sensors.coap((_HOST, port), number) and not cut,
    )


def idempotent_producer(folder: Path, broker: Broker) -> Gateway:
    """Return Kafka's idempotent producer behind HTTP."""
    (port,) = ports.free(1)
    command = (sys.executable, "-m", idempotent_gateway.__name__, str(port), broker.bootstrap_servers)
    process = Process(Command("idempotent", command, folder / "idempotent.log"))
    return OverKafka(
        *(broker, idempotent_gateway.TOPIC, process),
        wait=lambda: process.wait_for_port(port),
        attempt=lambda number, _, cut: sensors.post((_HOST, port), "/", number) and not cut,
    )


def telegraf(folder: Path, broker: Broker) -> Gateway:
    """Return mosquitto and Telegraf, with Kafka as the far end, and MQTT QoS 1 with persistent sessions."""
    mosquitto = Mosquitto(folder / "mosquitto", EACH_CHANGE)
    agent = 'flush_interval = "1s"\nmetric_batch_size = 1000\nmetric_buffer_limit = 1000000'
    output = contenders.to_kafka(broker.bootstrap_servers, "telegraf")
    process = contenders.telegraf(folder, agent, contenders.from_mqtt(mosquitto.port), output)
    return OverKafka(
        *(broker, "telegraf", mosquitto, process),
        wait=lambda: process.wait_for_log(contenders.TELEGRAF_READY),
        attempt=lambda number, again, cut: sensors.mqtt((_HOST, mosquitto.port), number, 1, again, cut=cut),
    )


class Collector:
    """A subscriber at the far end with a persistent session, which counts the events it receives."""

    def __init__(self, port: int, topic: str, qos: int) -> None:
        self.texts: list[bytes] = []
        self._port = port
        self._subscribed = threading.Event()
        self._client = Client(CallbackAPIVersion.VERSION2, "collector", clean_session=False)
        self._client.reconnect_delay_set(1, 1)
        self._client.on_message = self._add
        self._client.on_connect = lambda client, *_: client.subscribe(topic, qos)
        self._client.on_subscribe = lambda *_: self._subscribed.set()

    def connect(self) -> None:
        self._client.connect(_HOST, self._port, keepalive=10)
        self._client.loop_start()
        self._subscribed.wait(30)

    def disconnect(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def _add(self, _client: Client, _data: object, message: MQTTMessage) -> None:
        self.texts.append(bytes(message.payload))


class QosTwo:
    """Mosquitto on the gateway with QoS 2 from the sensors and to a subscriber, which is the far end."""

    def __init__(self, folder: Path, settings: Sequence[str]) -> None:
        self._mosquitto = Mosquitto(folder, settings)
        self._collector = Collector(self._mosquitto.port, "bench/#", 2)
        self._connected = False

    def start(self) -> None:
        self._mosquitto.start()
        if not self._connected:
            self.uplink(up=True)

    def kill(self) -> None:
        self._mosquitto.kill()

    def uplink(self, *, up: bool) -> None:
        self._connected = True
        self._collector.connect() if up else self._collector.disconnect()

    def send(self, number: int, again: int, *, cut: bool) -> bool:
        return sensors.mqtt((_HOST, self._mosquitto.port), number, 2, again, cut=cut)

    def arrived(self) -> Counter[int]:
        return destinations.numbers(list(self._collector.texts))


class Platform(Collector):
    """What ThingsBoard Gateway needs of its platform: it takes telemetry, and answers the question for its limits."""

    _REQUEST, _RESPONSE = "v1/devices/me/rpc/request/", "v1/devices/me/rpc/response/"
    _LIMITS = b'{"maxPayloadSize":65536,"maxInflightMessages":100,"rateLimits":{},"gatewayRateLimits":{}}'

    def __init__(self, port: int) -> None:
        super().__init__(port, "v1/gateway/telemetry", 1)
        self._client.message_callback_add(f"{self._REQUEST}+", self._answer)
        telemetry = self._client.on_connect
        assert telemetry is not None

        def subscribe(client: Client, *details: Any) -> None:
            client.subscribe(f"{self._REQUEST}+", 1)
            telemetry(client, *details)

        self._client.on_connect = subscribe

    def _answer(self, client: Client, _data: object, message: MQTTMessage) -> None:
        client.publish(self._RESPONSE + message.topic.removeprefix(self._REQUEST), self._LIMITS, 1)


class ThingsBoard:
    """ThingsBoard Gateway with its REST connector and SQLite storage."""

    def __init__(self, folder: Path) -> None:
        (port,) = ports.free(1)
        self._platform = Mosquitto(folder / "platform", EACH_CHANGE)
        self._collector = Platform(self._platform.port)
        home = (folder / "gateway").absolute()
        self._process = thingsboard.prepared(home, port, self._platform.port)
        self._port = port
        self._up = False

    def start(self) -> None:
        if self._process.exit_status is None:  # the first start
            self.uplink(up=True)
            self._collector.connect()
        self._process.start()
        self._process.wait_for_port(self._port)
        if self._up:
            self._process.wait_for_log(thingsboard.STARTED)

    def kill(self) -> None:
        self._process.kill()

    def uplink(self, *, up: bool) -> None:
        self._platform.start() if up else self._platform.stop()
        self._up = up

    def send(self, number: int, again: int, *, cut: bool) -> bool:
        return sensors.post((_HOST, self._port), thingsboard.PATH, number) and not cut

    def arrived(self) -> Counter[int]:
        return destinations.numbers(list(self._collector.texts))


class Nats:
    """JetStream on the gateway, synchronous, with ids of messages; the far end reads its stream."""

    def __init__(self, folder: Path) -> None:
        (port,) = ports.free(1)
        self._process = contenders.nats(folder, port)
        self._address = (_HOST, port)
        self._created = False

    def start(self) -> None:
        self._process.start()
        self._process.wait_for_log(contenders.NATS_READY)
        if not self._created:
            loads.create_stream(self._address)
            self._created = True

    def kill(self) -> None:
        self._process.kill()

    def uplink(self, *, up: bool) -> None:
        """Do nothing: the far end reads the stream at the end of the run."""

    def send(self, number: int, again: int, *, cut: bool) -> bool:
        return sensors.nats(self._address, number) and not cut

    def arrived(self) -> Counter[int]:
        return destinations.stream(self._address)
