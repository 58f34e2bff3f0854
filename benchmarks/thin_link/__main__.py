"""Measure the bytes that a gateway takes on a thin uplink: idle, and with the events of twenty sensors.

The agents are real ones, each with listeners of its brokers behind a slow link (600 ms there and back,
one of ten segments sent again after a second, 2 kB/s in each direction): of one broker with the topic's 12 partitions,
or of three with 48 partitions of three replicas. Kafka's requests are counted by their kind, except within TLS; the
heads of TCP and IP are added by calculation (`recorder.wire_bytes`), without the segments that are sent again,
which are a tenth more. A stand-in for the job commits receipts every two seconds. Beside them, a bridge of mosquitto
and Telegraf (`peers`) send the same readings, published with QoS 1, over the same link.
"""

import json
import random
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Final
from urllib.request import Request, urlopen

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from agent.forward.kafka.client import LastError
from agent.forward.kafka.topic import TopicWatch
from benchmarks import report
from benchmarks.agent import contenders, programs
from benchmarks.report import Figure
from benchmarks.thin_link.peers import TELEGRAFS, Peer, mosquitto_bridge, telegraf, wait_until_arrived
from benchmarks.thin_link.recorder import Traffic, wire_bytes
from benchmarks.thin_link.uplinks import SEED, Uplink, certificate, prepare
from contract import topics
from contract.event import Event, Value
from contract.receipt import GROUP_DEFAULT, Receipt
from simulators.payloads import device_name
from simulators.services import ports
from simulators.services.error import ServiceError
from simulators.services.kafka.broker import Broker
from simulators.services.kafka.cluster import NODES, KafkaCluster
from simulators.services.process import Process

EVENT_SECONDS: Final = 3.0
"""An event a minute from each sensor."""
COMMIT_SECONDS: Final = 2.0
START_SECONDS_MAX: Final = 300.0
SENSORS: Final = 20
START_MS: Final = 1_763_700_000_000
STEP_MS: Final = 3_000
READINGS_SEED: Final = 7
DAY_SECONDS: Final = 86_400
FIRST_EVENTS: Final = 110
"""Until each gateway has asked for receipts, at least every 5 minutes: its connections to do so stay open."""
CLUSTER_PARTITIONS: Final = 48
SPREAD: Final = 'spread = "gateway"\n'
POLLS: Final = 'poll_seconds = "5m"'
IDLE_MB_MAX: Final = 0.1


@dataclass(frozen=True, slots=True)
class UplinkGateway:
    """A configuration that is measured; `receipts` and `kafka` are lines of its sections."""

    name: str
    bytes_max: int | None = None
    """The goal, for each event."""
    has_events: bool = True
    kafka: str = ""
    receipts: str = ""
    is_tls: bool = False


_IDLE: Final = UplinkGateway("idle", has_events=False)
_DEFAULTS: Final = UplinkGateway("defaults")
_GATHERED: Final = UplinkGateway("gathered for 10 s", 280, kafka=f'{SPREAD}gather = "10s"', receipts=POLLS)
_TRANSACTIONS: Final = UplinkGateway(
    "exactly once, gathered for 30 s", 1_000, kafka=f'{SPREAD}delivery = "exactly-once"\ngather = "30s"', receipts=POLLS
)
ON_BROKER: Final = (
    _IDLE,
    _DEFAULTS,
    UplinkGateway("polls every 5 minutes", receipts=POLLS),
    UplinkGateway("one partition", kafka=SPREAD),
    UplinkGateway("one partition, polls every 5 minutes", 800, kafka=SPREAD, receipts=POLLS),
    _GATHERED,
    UplinkGateway("gathered for 30 s", 150, kafka=f'{SPREAD}gather = "30s"', receipts=POLLS),
    UplinkGateway("exactly once", kafka='delivery = "exactly-once"'),
    _TRANSACTIONS,
    replace(_DEFAULTS, name="defaults, TLS", is_tls=True),
    replace(_GATHERED, name="gathered for 10 s, TLS", bytes_max=None, is_tls=True),
    replace(_TRANSACTIONS, name="exactly once, gathered for 30 s, TLS", bytes_max=None, is_tls=True),
)
ON_CLUSTER: Final = (
    replace(_DEFAULTS, name="defaults, 48 partitions on three brokers"),
    replace(_GATHERED, name="gathered for 10 s, 48 partitions on three brokers", bytes_max=330),
    replace(_TRANSACTIONS, name="exactly once, gathered for 30 s, 48 partitions on three brokers"),
)


def agent(folder: Path, gateway: UplinkGateway, uplink: Uplink, certificates: Path) -> tuple[Process, str]:
    """Prepare an agent; return it, and the address of its HTTP server."""
    (port,) = ports.free(1)
    tls = f'properties = {{"security.protocol" = "SSL", "ssl.ca.location" = "{certificates}"}}\n'
    settings = (
        f'[coap]\nenabled = false\n[http]\nbind = "127.0.0.1:{port}"\n[receipts]\n{gateway.receipts}\n'
        f'[kafka]\nbootstrap_servers = "{uplink.servers}"\n{gateway.kafka}\n{tls if gateway.is_tls else ""}'
    )
    return contenders.agent(folder, folder.name, settings), f"http://127.0.0.1:{port}/api/v1/events"


def commit_receipts(servers: str, partitions: int, stop: threading.Event) -> int:
    """Commit receipts for all that the topic has, as the job does; return how often."""
    commits = 0
    topic_id = TopicWatch(AdminClient({"bootstrap.servers": servers}), topics.EVENTS, LastError()).read_id(stop)
    metadata = str(Receipt("0" * 36, 0, topic_id))
    reader = Consumer({"bootstrap.servers": servers, "group.id": GROUP_DEFAULT, "enable.auto.commit": False})
    numbers = range(partitions)
    while not stop.wait(COMMIT_SECONDS):
        try:
            ends = [reader.get_watermark_offsets(TopicPartition(topics.EVENTS, number), 10) for number in numbers]
        except KafkaException:  # as long as a new topic's leaders are not elected
            continue
        places = [
            TopicPartition(topics.EVENTS, number, high, metadata, 0)  # leader epoch 0: there was no second election
            for number, (_, high) in zip(numbers, ends, strict=True)
        ]
        reader.commit(offsets=places, asynchronous=False)
        commits += 1
    reader.close()
    return commits


def readings() -> Iterator[Event]:
    """Yield the events of all sensors in turn, endlessly.

    A half sends a temperature, as a CoAP sensor, the other half what a Zigbee climate sensor reports; each changes by
    small steps, as the real ones do.
    """
    chance = random.Random(READINGS_SEED)
    steps = dict.fromkeys(("temperature", "humidity", "pressure"), 0)
    states = [dict(steps) for _ in range(SENSORS)]
    number = 0
    while True:
        sensor, time_ms = number % SENSORS, START_MS + number * STEP_MS
        state = states[sensor]
        for name in state:
            state[name] = max(-40, min(40, state[name] + chance.choice((-1, 0, 0, 1))))
        data: dict[str, Value] = {"temperature": 21 + state["temperature"] / 10}
        if sensor % 2:
            data |= {"humidity": 45 + state["humidity"] / 4, "pressure": 1013 + state["pressure"] / 2}
            data |= {"battery": 100 - number // 5_000, "voltage": 3_000, "power_outage_count": 17}
        yield Event(device_name(sensor), id=number // SENSORS, time=time_ms if sensor % 2 else None, data=data)
        number += 1


def bodies() -> Iterator[bytes]:
    """Yield the readings as the bodies of requests."""
    for event in readings():
        yield json.dumps({"device": event.device, "id": event.id, "time": event.time, "data": event.data}).encode()


def main() -> int:
    """Measure all gateways at once, and write the JSON."""
    given = report.parse(report.parser("thin_link", __doc__))
    first, seconds = (10, 30.0) if given.quick else (FIRST_EVENTS, 600.0)
    with report.folder() as folder:
        figures = measure(folder, first, seconds)
    return report.conclude("thin_link", figures, given, seconds=seconds, event_seconds=EVENT_SECONDS, seed=SEED)


def measure(folder: Path, first: int, seconds: float) -> list[Figure]:
    """Run everything side by side; return the figures of each gateway."""
    telegrafs = TELEGRAFS if programs.telegraf() is not None else ()
    keystore = certificate(folder)
    gateways = (*ON_BROKER, *ON_CLUSTER)
    uplinks = prepare([gateway.is_tls for gateway in ON_BROKER], 1, keystore)
    peer_uplinks = prepare([False for _ in telegrafs], 1, keystore, "PEER")
    cluster_uplinks = prepare([False for _ in ON_CLUSTER], NODES, keystore)
    with ExitStack() as stack:
        listeners = [listener for uplink in (*uplinks, *peer_uplinks) for listener in uplink.listeners]
        broker = stack.enter_context(Broker(folder / "kafka", *listeners))
        broker.create_topics(topics.EVENTS, *(flush.topic for flush in telegrafs))
        nodes = list(zip(*(uplink.listeners for uplink in cluster_uplinks), strict=True))
        cluster = stack.enter_context(KafkaCluster(folder / "cluster", nodes))
        cluster.node(1).create_topics(partitions=CLUSTER_PARTITIONS)
        own = [*uplinks, *cluster_uplinks]
        for uplink in (*own, *peer_uplinks):
            stack.enter_context(uplink)
        agents = [
            agent(folder / f"gw{number}", gateway, uplink, keystore)
            for number, (gateway, uplink) in enumerate(zip(gateways, own, strict=True))
        ]
        for process, _ in agents:
            stack.enter_context(process)
        peers = [stack.enter_context(mosquitto_bridge(folder))]
        for flush, uplink in zip(telegrafs, peer_uplinks, strict=True):
            peers.append(stack.enter_context(telegraf(folder / flush.topic, uplink, flush)))
        for process, _ in agents:
            process.wait_for_log("kafka=reachable", START_SECONDS_MAX)
        stop = threading.Event()
        threads = stack.enter_context(ThreadPoolExecutor())
        receipts = [
            threads.submit(commit_receipts, broker.bootstrap_servers, topics.PARTITIONS, stop),
            threads.submit(commit_receipts, cluster.bootstrap_servers, CLUSTER_PARTITIONS, stop),
        ]
        stack.callback(stop.set)
        sending = [address for (_, address), gateway in zip(agents, gateways, strict=True) if gateway.has_events]
        figures = _window(list(zip(gateways, own, strict=True)), sending, peers, first, seconds)
        stop.set()
        if min(commits.result() for commits in receipts) < seconds / COMMIT_SECONDS / 4:
            raise ServiceError("too few receipts were committed: the agents polled more often than beside a job")
        for flush in telegrafs:
            wait_until_arrived(broker, flush.topic, first + int(seconds / EVENT_SECONDS))
    return figures


def _window(
    gateways: Sequence[tuple[UplinkGateway, Uplink]],
    addresses: list[str],
    peers: list[Peer],
    first: int,
    seconds: float,
) -> list[Figure]:
    """Send events for some time; return the figures of each gateway and peer."""
    source, events = bodies(), int(seconds / EVENT_SECONDS)
    _send(addresses, peers, islice(source, first))  # first events, connections and metadata are not counted
    for _, uplink in gateways:
        uplink.cut()
    for peer in peers:
        peer.recorder.cut()
    started = time.monotonic()
    _send(addresses, peers, islice(source, events))
    seconds = time.monotonic() - started  # longer on a busy machine
    figures: list[Figure] = []
    for gateway, uplink in gateways:
        figures += _figures(gateway, uplink.cut(), seconds, events)
        figures.append(Figure(f"{gateway.name}, connections", uplink.connections, ""))
    for peer in peers:
        figures += _figures(UplinkGateway(peer.name), peer.recorder.cut(), seconds, events)
    return figures


def _send(addresses: list[str], peers: list[Peer], source: Iterator[bytes]) -> None:
    """Send events to all agents and alternatives, one at a time."""
    due = time.monotonic()
    for body in source:
        due += EVENT_SECONDS
        for address in addresses:
            with urlopen(Request(address, body, {"Content-Type": "application/json"}), timeout=60) as answer:
                answer.read()
        for peer in peers:
            peer.publish(body)
        time.sleep(max(0.0, due - time.monotonic()))


def _figures(gateway: UplinkGateway, traffic: Mapping[str, Traffic], seconds: float, events: int) -> Iterator[Figure]:
    """Yield the bytes of a day, with those of each kind of request, and those of an event."""
    by_kind = {kind: wire_bytes(one) for kind, one in traffic.items()}
    total = sum(by_kind.values())
    requests = {kind: one["requests"] for kind, one in traffic.items()}
    day, day_max = total / seconds * DAY_SECONDS / 1e6, None if gateway.has_events else IDLE_MB_MAX
    yield report.against(
        f"{gateway.name}, a day", day, "MB", day_max, bytes_by_request=by_kind, requests=requests
    )  # fmt: skip
    if gateway.has_events:
        yield report.against(f"{gateway.name}, an event", total / events, "bytes", gateway.bytes_max)


if __name__ == "__main__":
    sys.exit(main())
