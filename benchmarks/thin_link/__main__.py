"""Measure the bytes that a gateway takes on a thin uplink: idle, and with the events of twenty sensors.

The agents are real ones, each with a listener of the broker behind a recorder and a slow link (600 ms there and back,
one of ten segments sent again after a second, 2 kB/s in each direction). Kafka's requests are counted by their kind;
the heads of TCP and IP are added by calculation (`recorder.Traffic.wire_bytes`), without the segments that are sent
again, which are a tenth more, and without TLS. A stand-in for the job commits receipts every two seconds. Beside them,
a bridge of mosquitto and Telegraf (`peers`) send the same readings, published with QoS 1, over the same link.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
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
from benchmarks.thin_link.peers import SEED, TELEGRAFS, Peer, mosquitto_bridge, slow_link, telegraf, wait_until_arrived
from benchmarks.thin_link.recorder import Recorder, Traffic
from benchmarks.uplink import readings
from contract import topics
from contract.receipt import GROUP_DEFAULT, Receipt
from simulators.services import ports
from simulators.services.error import ServiceError
from simulators.services.kafka.broker import Broker, Listener

EVENT_SECONDS: Final = 3.0
"""Twenty sensors, an event a minute from each."""
COMMIT_SECONDS: Final = 2.0
START_SECONDS_MAX: Final = 120.0
DAY_SECONDS: Final = 86_400
FIRST_EVENTS: Final = 10
PARTITIONS: Final = range(topics.PARTITIONS)
SPREAD: Final = 'spread = "gateway"\n'


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
    UplinkGateway("one partition", kafka=SPREAD),
    UplinkGateway("gathered for 10 s", kafka=f'{SPREAD}gather = "10s"', receipts='poll_seconds = "5m"'),
    UplinkGateway("gathered for 30 s", kafka=f'{SPREAD}gather = "30s"', receipts='poll_seconds = "5m"'),
    UplinkGateway("exactly once", kafka='delivery = "exactly-once"'),
    UplinkGateway("exactly once, gathered for 30 s", kafka=f'{SPREAD}delivery = "exactly-once"\ngather = "30s"'),
)


@contextmanager
def agent(folder: Path, servers: str, gateway: UplinkGateway) -> Iterator[str]:
    """Run an agent; yield the address of its HTTP server."""
    (port,) = ports.free(1)
    settings = (
        f'[coap]\nenabled = false\n[http]\nbind = "127.0.0.1:{port}"\n[receipts]\n{gateway.receipts}\n'
        f'[kafka]\nbootstrap_servers = "{servers}"\n{gateway.kafka}\n'
    )
    with contenders.agent(folder, folder.name, settings) as process:
        process.wait_for_log("kafka=reachable", START_SECONDS_MAX)
        yield f"http://127.0.0.1:{port}/api/v1/events"


def commit_receipts(broker: Broker, stop: threading.Event) -> int:
    """Commit receipts for all that the topic has, as the job does; return how often."""
    commits = 0
    servers = broker.bootstrap_servers
    topic_id = TopicWatch(AdminClient({"bootstrap.servers": servers}), topics.EVENTS, LastError()).read_id(stop)
    metadata = str(Receipt("0" * 36, 0, topic_id))
    reader = Consumer({"bootstrap.servers": servers, "group.id": GROUP_DEFAULT, "enable.auto.commit": False})
    while not stop.wait(COMMIT_SECONDS):
        try:
            ends = [reader.get_watermark_offsets(TopicPartition(topics.EVENTS, number), 10) for number in PARTITIONS]
        except KafkaException:  # as long as a new topic's leaders are not elected
            continue
        places = [
            TopicPartition(topics.EVENTS, number, high, metadata, 0)  # leader epoch 0: no election on one broker
            for number, (_, high) in zip(PARTITIONS, ends, strict=True)
        ]
        reader.commit(offsets=places, asynchronous=False)
        commits += 1
    reader.close()
    return commits


def bodies() -> Iterator[bytes]:
    """Yield the readings as the bodies of requests."""
    for event in readings():
        yield json.dumps({"device": event.device, "id": event.id, "time": event.time, "data": event.data}).encode()


def main() -> int:
    """Measure all gateways at once, and write the JSON."""
    given = report.parser("thin_link", __doc__).parse_args()
    seconds = 30.0 if given.quick else 360.0
    with report.folder() as folder:
        figures = measure(folder, seconds)
    settings = {"seconds": seconds, "event_seconds": EVENT_SECONDS, "seed": SEED}
    report.conclude("thin_link", figures, is_kept=not given.quick, **settings)
    return 0


def measure(folder: Path, seconds: float) -> list[Figure]:
    """Run everything side by side; return the figures of each gateway."""
    telegrafs = TELEGRAFS if programs.telegraf() is not None else ()
    free = ports.free(2 * (len(GATEWAYS) + len(telegrafs)))
    places = list(zip(free[::2], free[1::2], strict=True))
    listeners = [
        Listener("PLAINTEXT", own, advertised, name=f"LINK{number}") for number, (own, advertised) in enumerate(places)
    ]
    with ExitStack() as stack:
        broker = stack.enter_context(Broker(folder / "kafka", *listeners))
        broker.create_topics(topics.EVENTS, *(flush.topic for flush in telegrafs))
        recorders = [
            stack.enter_context(Recorder(advertised, stack.enter_context(slow_link(own)))) for own, advertised in places
        ]
        own_recorders = recorders[: len(GATEWAYS)]
        addresses = [
            stack.enter_context(agent(folder / f"gw{number}", f"127.0.0.1:{recorder.port}", gateway))
            for number, (gateway, recorder) in enumerate(zip(GATEWAYS, own_recorders, strict=True))
        ]
        peers = [stack.enter_context(mosquitto_bridge(folder))]
        for flush, recorder in zip(telegrafs, recorders[len(GATEWAYS) :], strict=True):
            peers.append(stack.enter_context(telegraf(folder / flush.topic, recorder, flush)))
        stop = threading.Event()
        receipts = stack.enter_context(ThreadPoolExecutor()).submit(commit_receipts, broker, stop)
        stack.callback(stop.set)
        sending = [address for address, gateway in zip(addresses, GATEWAYS, strict=True) if gateway.has_events]
        source = bodies()
        _send(sending, peers, islice(source, FIRST_EVENTS))  # first events, connections and metadata are not counted
        for recorder in (*own_recorders, *(peer.recorder for peer in peers)):
            recorder.cut()
        events = int(seconds / EVENT_SECONDS)
        started = time.monotonic()
        _send(sending, peers, islice(source, events))
        seconds = time.monotonic() - started  # longer on a busy machine
        figures: list[Figure] = []
        for gateway, recorder in zip(GATEWAYS, own_recorders, strict=True):
            figures += _figures(gateway.name, recorder.cut(), seconds, events if gateway.has_events else 0)
        for peer in peers:
            figures += _figures(peer.name, peer.recorder.cut(), seconds, events)
        stop.set()
        if receipts.result() < seconds / COMMIT_SECONDS / 4:
            raise ServiceError("too few receipts were committed: the agents polled more often than beside a job")
        for flush in telegrafs:
            wait_until_arrived(broker, flush.topic, FIRST_EVENTS + events)
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


def _figures(name: str, traffic: Mapping[str, Traffic], seconds: float, events: int) -> Iterator[Figure]:
    """Yield the bytes of a day, with those of each kind of request, and those of an event."""
    by_kind = {kind: one.wire_bytes for kind, one in traffic.items()}
    total = sum(by_kind.values())
    details: dict[str, object] = {
        "bytes_by_request": by_kind,
        "requests": {kind: one.requests for kind, one in traffic.items()},
    }
    yield Figure(f"{name}, a day", total / seconds * DAY_SECONDS / 1e6, "MB", details=details)
    if events:
        yield Figure(f"{name}, an event", total / events, "bytes")


if __name__ == "__main__":
    sys.exit(main())
