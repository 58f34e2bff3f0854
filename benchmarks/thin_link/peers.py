"""The alternatives on a thin uplink: a bridge between two mosquittos, and Telegraf from a mosquitto to Kafka."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from benchmarks.agent import contenders
from benchmarks.thin_link.recorder import Recorder
from benchmarks.thin_link.uplinks import Uplink, slow_link
from simulators.evidence.topic import Topic
from simulators.services.error import ServiceError
from simulators.services.kafka.broker import Broker
from simulators.services.mosquitto import Mosquitto

TOPIC: Final = "bench/readings"
ARRIVAL_SECONDS_MAX: Final = 120.0
POLL_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Peer:
    """A client of the broker on the gateway, and the recorder of what leaves the gateway."""

    name: str
    client: Client
    recorder: Recorder

    def publish(self, body: bytes) -> None:
        """Publish a reading with QoS 1."""
        self.client.publish(TOPIC, body, 1)


@dataclass(frozen=True, slots=True)
class TelegrafFlush:
    """A configuration of Telegraf that is measured, with a topic of its own."""

    name: str
    topic: str
    interval: str


TELEGRAFS: Final = (
    TelegrafFlush("Telegraf, flush each second", "telegraf-1s", "1s"),
    TelegrafFlush("Telegraf, flush every 10 s", "telegraf-10s", "10s"),
)


@contextmanager
def mosquitto_bridge(folder: Path) -> Iterator[Peer]:
    """Run two brokers of mosquitto with a bridge over the slow link."""
    recorder = Recorder(is_kafka=False)
    with Mosquitto(folder / "far") as far, slow_link(far.port, recorder) as link:
        address = f"address 127.0.0.1:{link.address[1]}"
        settings = ("allow_anonymous true", "connection uplink", address, "topic # out 1", "cleansession false")
        with Mosquitto(folder / "near", settings) as near, _client(near) as client:
            yield Peer("mosquitto's bridge", client, recorder)


@contextmanager
def telegraf(folder: Path, uplink: Uplink, flush: TelegrafFlush) -> Iterator[Peer]:
    """Run mosquitto and Telegraf, which sends over the uplink; wait for its connection."""
    agent = f'flush_interval = "{flush.interval}"\nomit_hostname = true'
    output = contenders.to_kafka(uplink.servers, flush.topic)
    with (
        Mosquitto(folder / "mosquitto") as near,
        contenders.telegraf(folder, agent, contenders.from_mqtt(near.port), output) as process,
        _client(near) as client,
    ):
        process.wait_for_log(contenders.TELEGRAF_READY)
        yield Peer(flush.name, client, uplink.recorders[0])


def wait_until_arrived(broker: Broker, topic: str, count: int) -> None:
    """Wait until a topic has this many records: bytes of lost records must not count; raise ServiceError."""
    of, deadline = Topic(broker.bootstrap_servers, topic), time.monotonic() + ARRIVAL_SECONDS_MAX
    while (arrived := sum(of.ends().values())) < count:
        if time.monotonic() > deadline:
            raise ServiceError(f"{topic}: {arrived:,} of {count:,} records after {ARRIVAL_SECONDS_MAX:g} s")
        time.sleep(POLL_SECONDS)


@contextmanager
def _client(broker: Mosquitto) -> Iterator[Client]:
    client = Client(CallbackAPIVersion.VERSION2)
    client.connect("127.0.0.1", broker.port)
    client.loop_start()
    try:
        yield client
    finally:
        client.loop_stop()
