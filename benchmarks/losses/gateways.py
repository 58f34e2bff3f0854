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


class _Processes:
    """Processes that are started in order and killed together."""

    def __init__(self, *processes: Process) -> None:
        self.processes: Sequence[Process] = processes

    def kill(self) -> None:
        for process in self.processes:
            process.kill()


class OverKafka(_Processes):
    """A gateway in front of a Kafka broker."""

    def __init__(self, broker: Broker, topic: str, process: Process, port: int, attempt: Callable[[int], bool]) -> None:
        super().__init__(process)
        self._broker, self._topic, self._port, self._attempt = broker, topic, port, attempt
        broker.create_topics(topic)

    def start(self) -> None:
        self.processes[0].start()

    def uplink(self, *, up: bool) -> None:
        self._broker.start() if up else self._broker.stop()

    def send(self, number: int, again: int, *, cut: bool) -> bool:
        return self._attempt(number) and not cut

    def arrived(self) -> Counter[int]:
        return destinations.topic(self._broker.bootstrap_servers, self._topic)


class Oncegate(OverKafka):
    """The agent with CoAP sensors and exactly-once delivery, which a reader of the topic needs without the job."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        (port,) = ports.free(1)
        settings = (
            f'[coap]\nbind = "{_HOST}:{port}"\n[http]\nenabled = false\n[kafka]\ntopic = "oncegate"\n'
            f'bootstrap_servers = "{broker.bootstrap_servers}"\ndelivery = "exactly-once"\n'
        )
        attempt = lambda number: sensors.coap((_HOST, port), number)  # noqa: E731
        super().__init__(broker, "oncegate", contenders.agent(folder, "gw", settings), port, attempt)

    def start(self) -> None:
        super().start()
        self.processes[0].wait_for_log(contenders.AGENT_READY)


class IdempotentProducer(OverKafka):
    """Kafka's idempotent producer behind HTTP."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        (port,) = ports.free(1)
        command = (sys.executable, "-m", idempotent_gateway.__name__, str(port), broker.bootstrap_servers)
        process = Process(Command("idempotent", command, folder / "idempotent.log"))
        attempt = lambda number: sensors.post((_HOST, port), "/", number)  # noqa: E731
        super().__init__(broker, idempotent_gateway.TOPIC, process, port, attempt)

    def start(self) -> None:
        super().start()
        self.processes[0].wait_for_port(self._port)


class Telegraf(OverKafka):
    """Mosquitto and Telegraf on the gateway, Kafka as the far end, MQTT QoS 1 with persistent sessions."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self._mosquitto = Mosquitto(folder / "mosquitto", EACH_CHANGE)
        port = self._mosquitto.port
        agent = 'flush_interval = "1s"\nmetric_batch_size = 1000\nmetric_buffer_limit = 1000000'
        output = contenders.to_kafka(broker.bootstrap_servers, "telegraf")
        process = contenders.telegraf(folder, agent, contenders.from_mqtt(port), output)
        super().__init__(broker, "telegraf", process, port, lambda _: False)

    def start(self) -> None:
        self._mosquitto.start()
        super().start()
        self.processes[0].wait_for_log(contenders.TELEGRAF_READY)

    def kill(self) -> None:
        self._mosquitto.kill()
        super().kill()

    def send(self, number: int, again: int, *, cut: bool) -> bool:
        return sensors.mqtt((_HOST, self._port), number, 1, again, cut=cut)


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


class ThingsBoard(_Processes):
    """ThingsBoard Gateway with its REST connector and SQLite storage."""

    def __init__(self, folder: Path) -> None:
        (port,) = ports.free(1)
        self._platform = Mosquitto(folder / "platform", EACH_CHANGE)
        self._collector = Platform(self._platform.port)
        home = (folder / "gateway").absolute()
        super().__init__(thingsboard.prepared(home, port, self._platform.port))
        self._port = port
        self._up = False

    def start(self) -> None:
        if self.processes[0].exit_status is None:  # the first start
            self.uplink(up=True)
            self._collector.connect()
        self.processes[0].start()
        self.processes[0].wait_for_port(self._port)
        if self._up:
            self.processes[0].wait_for_log(thingsboard.STARTED)

    def uplink(self, *, up: bool) -> None:
        self._platform.start() if up else self._platform.stop()
        self._up = up

    def send(self, number: int, again: int, *, cut: bool) -> bool:
        return sensors.post((_HOST, self._port), thingsboard.PATH, number) and not cut

    def arrived(self) -> Counter[int]:
        return destinations.numbers(list(self._collector.texts))


class Nats(_Processes):
    """JetStream on the gateway, synchronous, with ids of messages; the far end reads its stream."""

    def __init__(self, folder: Path) -> None:
        (port,) = ports.free(1)
        super().__init__(contenders.nats(folder, port))
        self._address = (_HOST, port)
        self._created = False

    def start(self) -> None:
        self.processes[0].start()
        self.processes[0].wait_for_log(contenders.NATS_READY)
        if not self._created:
            loads.create_stream(self._address)
            self._created = True

    def uplink(self, *, up: bool) -> None:
        """Do nothing: the far end reads the stream at the end of the run."""

    def send(self, number: int, again: int, *, cut: bool) -> bool:
        return sensors.nats(self._address, number) and not cut

    def arrived(self) -> Counter[int]:
        return destinations.stream(self._address)
