"""Measure the bytes that a gateway takes on a thin uplink: idle, and with the events of twenty sensors.

The agents are real ones, each with a listener of the broker behind a recorder and a slow link (600 ms there and back,
one of ten segments sent again after a second, 2 kB/s in each direction). Kafka's requests are counted by their kind;
the heads of TCP and IP are added by calculation (`recorder.Traffic.wire_bytes`), without the segments that are sent
again, which are a tenth more, and without TLS. A stand-in for the job commits receipts every two seconds. Beside them,
a bridge of mosquitto sends the same readings with QoS 1 over the same link.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import Final
from urllib.request import Request, urlopen

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from agent.forward.kafka.client import LastError
from agent.forward.kafka.topic import TopicWatch
from benchmarks import report
from benchmarks.fleet.recorder import Recorder, Traffic
from benchmarks.report import Figure
from benchmarks.uplink import readings
from contract import topics
from contract.receipt import GROUP_DEFAULT, Receipt
from simulators.link.faults import Delay, LinkFault, Packet
from simulators.link.profile import LinkProfile
from simulators.link.tcp import StreamLink
from simulators.services import ports
from simulators.services.kafka.broker import Broker
from simulators.services.kafka.settings import Listener
from simulators.services.mosquitto import Mosquitto
from simulators.services.process import Command, Process

DELAY_SECONDS: Final = 0.3
LOSS: Final = 0.1
RESEND_SECONDS: Final = 1.0
BYTES_PER_SECOND: Final = 2_000
EVENT_SECONDS: Final = 3.0
"""Twenty sensors, an event a minute from each."""
COMMIT_SECONDS: Final = 2.0
START_SECONDS_MAX: Final = 120.0
DAY_SECONDS: Final = 86_400
SEED: Final = 3
PARTITIONS: Final = range(topics.PARTITIONS)
TOPIC: Final = "bench/readings"


@dataclass(frozen=True, slots=True)
class UplinkGateway:
    """A configuration that is measured; `receipts` and `kafka` are lines of its sections."""

    name: str
    has_events: bool = True
    kafka: str = ""
    receipts: str = ""


GATEWAYS: Final = (
    UplinkGateway("idle", has_events=False),
    UplinkGateway("defaults"),
    UplinkGateway("lz4", kafka='properties = {"compression.type" = "lz4"}'),
    UplinkGateway("polls every 5 minutes", receipts='poll_seconds = "5m"'),
    UplinkGateway("events gathered for 20 s", kafka='properties = {"linger.ms" = "20000"}'),
    UplinkGateway(
        "both",
        kafka='properties = {"linger.ms" = "20000"}',
        receipts='poll_seconds = "5m"',
    ),
)


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
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="link", daemon=True)
    thread.start()
    link = StreamLink(("127.0.0.1", target), LinkProfile(faults, faults), 0.0, SEED)
    asyncio.run_coroutine_threadsafe(link.__aenter__(), loop).result(10)
    yield link.address[1]
    asyncio.run_coroutine_threadsafe(link.__aexit__(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


@contextmanager
def agent(folder: Path, servers: str, gateway: UplinkGateway) -> Iterator[str]:
    """Run an agent; yield the address of its HTTP server."""
    folder.mkdir()
    (port,) = ports.free(1)
    file = folder / "oncegate.toml"
    file.write_text(
        f'[gateway]\nid = "gw-1"\nstate_dir = "{folder / "state"}"\n[coap]\nenabled = false\n'
        f'[http]\nbind = "127.0.0.1:{port}"\n[receipts]\n{gateway.receipts}\n'
        f'[kafka]\nbootstrap_servers = "{servers}"\n{gateway.kafka}\n'
    )
    command = (sys.executable, "-m", "agent.cli.main", "run", "--config", str(file))
    with Process(Command("agent", command, folder / "agent.log")) as process:
        process.wait_for_log("kafka=reachable", START_SECONDS_MAX)
        yield f"http://127.0.0.1:{port}/api/v1/events"


def give_receipts(broker: Broker, stop: threading.Event) -> None:
    """Commit receipts for all that the topic has, as the job does."""
    servers = broker.bootstrap_servers
    topic_id = TopicWatch(AdminClient({"bootstrap.servers": servers}), topics.EVENTS, LastError()).read_id(stop)
    metadata = str(Receipt("0" * 36, 0, topic_id))
    reader = Consumer({"bootstrap.servers": servers, "group.id": GROUP_DEFAULT, "enable.auto.commit": False})
    while not stop.wait(COMMIT_SECONDS):
        ends = [reader.get_watermark_offsets(TopicPartition(topics.EVENTS, number), 10) for number in PARTITIONS]
        places = [
            TopicPartition(topics.EVENTS, number, high, metadata=metadata)
            for number, (_, high) in zip(PARTITIONS, ends, strict=True)
        ]
        reader.commit(offsets=places, asynchronous=False)
    reader.close()


def bodies() -> Iterator[bytes]:
    """Yield the readings as the bodies of requests."""
    for event in readings():
        yield json.dumps({"device": event.device, "id": event.id, "time": event.time, "data": event.data}).encode()


def main() -> int:
    """Measure all gateways at once, and write the JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.thin_link", description=__doc__)
    parser.add_argument("--seconds", type=float, default=360.0, help="default: %(default)s")
    parser.add_argument("--quick", action="store_true", help="half a minute; saves nothing")
    given = parser.parse_args()
    seconds = 30.0 if given.quick else given.seconds
    folder = Path(tempfile.mkdtemp(prefix="oncegate-bench-"))
    try:
        figures = measure(folder, seconds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if given.quick:
        report.show("thin_link", figures)
    else:
        report.keep("thin_link", figures, seconds=seconds, event_seconds=EVENT_SECONDS, seed=SEED)
    return 0


def measure(folder: Path, seconds: float) -> list[Figure]:
    """Run everything side by side; return the figures of each gateway."""
    free = ports.free(2 * len(GATEWAYS))
    places = list(zip(free[::2], free[1::2], strict=True))
    listeners = [
        Listener("PLAINTEXT", own, advertised, name=f"LINK{number}") for number, (own, advertised) in enumerate(places)
    ]
    with ExitStack() as stack:
        broker = stack.enter_context(Broker(folder / "kafka", *listeners))
        broker.create_topics(topics.EVENTS)
        recorders, addresses = [], []
        for number, (gateway, (own, advertised)) in enumerate(zip(GATEWAYS, places, strict=True)):
            link = stack.enter_context(slow_link(own))
            recorders.append(stack.enter_context(Recorder(advertised, link)))
            servers = f"127.0.0.1:{advertised}"
            addresses.append(stack.enter_context(agent(folder / f"gw{number}", servers, gateway)))
        bridge = stack.enter_context(mosquitto_bridge(folder))
        stop = threading.Event()
        receipts = threading.Thread(target=give_receipts, args=(broker, stop), name="receipts")
        receipts.start()
        sending = [address for address, gateway in zip(addresses, GATEWAYS, strict=True) if gateway.has_events]
        _send(sending, bridge, 10)  # first events, connections and metadata are not counted
        starts = [one.cut() for one in recorders]
        bridge.recorder.cut()
        events = int(seconds / EVENT_SECONDS)
        _send(sending, bridge, events)
        figures: list[Figure] = []
        for gateway, recorder, start in zip(GATEWAYS, recorders, starts, strict=True):
            figures += _figures(gateway.name, recorder.cut().traffic, seconds, events if gateway.has_events else 0)
            figures.append(Figure(f"{gateway.name}, start", start.total.wire_bytes, "bytes"))
        figures += _figures("mosquitto's bridge", bridge.recorder.cut().traffic, seconds, events)
        stop.set()
        receipts.join()
    return figures


def _send(addresses: list[str], bridge: Bridge, count: int) -> None:
    """Send events to all agents and to the bridge, one at a time."""
    due = time.monotonic()
    for body in islice(bodies(), count):
        due += EVENT_SECONDS
        for address in addresses:
            with urlopen(Request(address, body, {"Content-Type": "application/json"}), timeout=60) as answer:
                answer.read()
        bridge.client.publish(TOPIC, body, 1)
        time.sleep(max(0.0, due - time.monotonic()))


@dataclass(frozen=True, slots=True)
class Bridge:
    """A client of the near broker, and the recorder of what the bridge sends to the far one."""

    client: Client
    recorder: Recorder


@contextmanager
def mosquitto_bridge(folder: Path) -> Iterator[Bridge]:
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
        Recorder(port, link, is_kafka=False) as recorder,
        Mosquitto(folder / "near", settings) as near,
    ):
        client = Client(CallbackAPIVersion.VERSION2)
        client.connect("127.0.0.1", near.port)
        client.loop_start()
        yield Bridge(client, recorder)
        client.loop_stop()


def _figures(name: str, traffic: Mapping[str, Traffic], seconds: float, events: int) -> Iterator[Figure]:
    """Yield the bytes of a day, with those of each kind of request, and those of an event."""
    by_kind = {kind: one.wire_bytes for kind, one in traffic.items()}
    total = sum(by_kind.values())
    details: dict[str, object] = {
        "bytes_by_request": by_kind,
        "requests": {kind: one.requests for kind, one in traffic.items()},
        "payload_bytes": sum(one.sent_bytes + one.received_bytes for one in traffic.values()),
    }
    yield Figure(f"{name}, a day", total / seconds * DAY_SECONDS / 1e6, "MB", details=details)
    if events:
        yield Figure(f"{name}, an event", total / events, "bytes")


if __name__ == "__main__":
    sys.exit(main())
