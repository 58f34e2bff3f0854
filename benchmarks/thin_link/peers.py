"""The alternatives on a thin uplink: a bridge between two mosquittos, and Telegraf from a mosquitto to Kafka."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from benchmarks.agent import contenders
from benchmarks.thin_link.recorder import Recorder, in_thread
from simulators.evidence.topic import Topic
from simulators.link.faults import Delay, LinkFault, LinkProfile, Packet
from simulators.link.tcp import StreamLink
from simulators.services import ports
from simulators.services.error import ServiceError
from simulators.services.kafka.broker import Broker
from simulators.services.mosquitto import Mosquitto

TOPIC: Final = "bench/readings"
ARRIVAL_SECONDS_MAX: Final = 120.0
POLL_SECONDS: Final = 0.5
DELAY_SECONDS: Final = 0.3
LOSS: Final = 0.1
RESEND_SECONDS: Final = 1.0
BYTES_PER_SECOND: Final = 2_000
SEED: Final = 3


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
    (port,) = ports.free(1)
    settings = (
        "allow_anonymous true",
        "connection uplink",
        f"address 127.0.0.1:{port}",
        "topic # out 1",
        "cleansession false",
    )
    with (
        Mosquitto(folder / "far") as far,
        slow_link(far.port) as link,
        in_thread(Recorder(port, link, is_kafka=False)) as recorder,
        Mosquitto(folder / "near", settings) as near,
        _client(near) as client,
    ):
        yield Peer("mosquitto's bridge", client, recorder)


@contextmanager
def telegraf(folder: Path, recorder: Recorder, flush: TelegrafFlush) -> Iterator[Peer]:
    """Run mosquitto and Telegraf, which sends to the Kafka broker behind the recorder; wait for its connection."""
    agent = f'flush_interval = "{flush.interval}"\nomit_hostname = true'
    output = contenders.to_kafka(f"127.0.0.1:{recorder.port}", flush.topic)
    with (
        Mosquitto(folder / "mosquitto") as near,
        contenders.telegraf(folder, agent, contenders.from_mqtt(near.port), output) as process,
        _client(near) as client,
    ):
        process.wait_for_log(contenders.TELEGRAF_READY)
        yield Peer(flush.name, client, recorder)


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


@dataclass(slots=True)
class Resend:
    """What TCP makes of losses: a segment arrives later, once or several times."""

    random: Random

    def apply(self, packet: Packet) -> tuple[Packet]:
        """Delay a lost segment."""
        while self.random.random() < LOSS:
            packet = packet.later(RESEND_SECONDS)
        return (packet,)


@dataclass(slots=True)
class Rate:
    """What a slow line makes of a piece: it takes time by its size."""

    def apply(self, packet: Packet) -> tuple[Packet]:
        """Delay a piece by the time that its bytes take."""
        return (packet.later(len(packet.datagram) / BYTES_PER_SECOND),)


def faults(random: Random) -> list[LinkFault]:
    """Return the faults of one direction."""
    return [Delay(DELAY_SECONDS, DELAY_SECONDS, random), Resend(random), Rate()]


@contextmanager
def slow_link(target: int) -> Iterator[int]:
    """Run the link in a thread; yield its port."""
    with in_thread(StreamLink(("127.0.0.1", target), LinkProfile(faults, faults), 0.0, SEED)) as link:
        yield link.address[1]
