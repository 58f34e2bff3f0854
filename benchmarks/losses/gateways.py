"""The compared gateways: all processes that lose power together, and the far end that an uplink leads to."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion

from benchmarks.agent import contenders, loads
from benchmarks.agent import thingsboard as thingsboard_gateway
from benchmarks.losses import destinations, idempotent_gateway, sensors
from simulators.services import ports
from simulators.services.kafka.broker import Broker
from simulators.services.mosquitto import Mosquitto
from simulators.services.process import Command, Process

_HOST = "127.0.0.1"
EACH_CHANGE = ("allow_anonymous true", "autosave_on_changes true")
"""The settings with which mosquitto keeps the most: it saves its state after every change, not after each second."""
EACH_SECOND = ("allow_anonymous true",)


@dataclass(frozen=True, slots=True)
class Gateway:
    """A gateway: services that are started in order and killed together, as by a power failure."""

    services: Sequence[Process | Mosquitto]
    wait: Callable[[], object]
    """Returns once the services listen."""
    attempt: Callable[[int, int, bool], bool]
    """Sends an event once, given its number, how often it was sent before, and whether the response is to be lost.

    Returns whether the sensor has received the acknowledgement; raises OSError where there is no response.
    """
    arrived: Callable[[], Counter[int]]
    """Counts what has arrived at the far end, by the events' numbers."""
    far_end: Broker | Mosquitto | Collector | None
    """What is stopped while the uplink is down; None for a gateway that has no uplink of its own."""

    def start(self) -> None:
        """Start the services, and return once they listen."""
        for service in self.services:
            service.start()
        self.wait()

    def kill(self) -> None:
        """End the services by SIGKILL."""
        for service in self.services:
            service.kill()

    def uplink(self, *, up: bool) -> None:
        """Make the far end reachable or unreachable."""
        if self.far_end is not None:
            self.far_end.start() if up else self.far_end.stop()


def over_kafka(
    broker: Broker,
    topic: str,
    *services: Process | Mosquitto,
    wait: Callable[[], object],
    attempt: Callable[[int, int, bool], bool],
) -> Gateway:
    """Return a gateway in front of a Kafka broker."""
    broker.create_topics(topic)
    return Gateway(services, wait, attempt, lambda: destinations.topic(broker.bootstrap_servers, topic), broker)


def oncegate(folder: Path, broker: Broker) -> Gateway:
    """Return the agent with CoAP sensors, and exactly-once delivery for a reader without the job."""
    (port,) = ports.free(1)
    settings = (
        f'[coap]\nbind = "{_HOST}:{port}"\n[http]\nenabled = false\n[kafka]\ntopic = "oncegate"\n'
        f'bootstrap_servers = "{broker.bootstrap_servers}"\ndelivery = "exactly-once"\n'
    )
    process = contenders.agent(folder, "gw", settings)
    return over_kafka(
        *(broker, "oncegate", process),
        wait=lambda: process.wait_for_log(contenders.AGENT_READY),
        attempt=lambda number, _, cut: sensors.coap((_HOST, port), number) and not cut,
    )


def idempotent_producer(folder: Path, broker: Broker) -> Gateway:
    """Return Kafka's idempotent producer behind HTTP."""
    (port,) = ports.free(1)
    command = (sys.executable, "-m", idempotent_gateway.__name__, str(port), broker.bootstrap_servers)
    process = Process(Command("idempotent", command, folder / "idempotent.log"))
    return over_kafka(
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
    return over_kafka(
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

    def start(self) -> None:
        """Connect, and return once it is subscribed."""
        self._client.connect(_HOST, self._port, keepalive=10)
        self._client.loop_start()
        self._subscribed.wait(30)

    def stop(self) -> None:
        """Disconnect; the broker keeps what is sent meanwhile."""
        self._client.disconnect()
        self._client.loop_stop()

    def arrived(self) -> Counter[int]:
        """Count the events by their numbers."""
        return destinations.numbers(list(self.texts))

    def _add(self, _client: Client, _data: object, message: MQTTMessage) -> None:
        self.texts.append(bytes(message.payload))


def qos_two(folder: Path, settings: Sequence[str]) -> Gateway:
    """Return mosquitto with QoS 2 from the sensors and to a subscriber, which is the far end."""
    mosquitto = Mosquitto(folder, settings)
    collector = Collector(mosquitto.port, "bench/#", 2)
    address = _HOST, mosquitto.port
    return Gateway(
        (mosquitto,),
        cache(collector.start),  # after the first start; then it connects by itself
        lambda number, again, cut: sensors.mqtt(address, number, 2, again, cut=cut),
        collector.arrived,
        collector,
    )


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


def thingsboard(folder: Path) -> Gateway:
    """Return ThingsBoard Gateway with its REST connector and SQLite storage, connected to its platform."""
    (port,) = ports.free(1)
    platform = Mosquitto(folder / "platform", EACH_CHANGE)
    platform.start()
    collector = Platform(platform.port)
    collector.start()
    process = thingsboard_gateway.prepared((folder / "gateway").absolute(), port, platform.port)

    def wait() -> None:
        process.wait_for_port(port)
        if platform.process.alive:
            process.wait_for_log(thingsboard_gateway.STARTED)

    return Gateway(
        (process,),
        wait,
        lambda number, _, cut: sensors.post((_HOST, port), thingsboard_gateway.PATH, number) and not cut,
        collector.arrived,
        platform,
    )


def nats(folder: Path) -> Gateway:
    """Return JetStream, synchronous, with ids of messages; the far end reads its stream at the end of the run."""
    (port,) = ports.free(1)
    process, address = contenders.nats(folder, port), (_HOST, port)
    create_stream = cache(partial(loads.create_stream, address))  # after the first start

    def wait() -> None:
        process.wait_for_log(contenders.NATS_READY)
        create_stream()

    return Gateway(
        (process,),
        wait,
        lambda number, _, cut: sensors.nats(address, number) and not cut,
        lambda: destinations.stream(address),
        None,
    )
