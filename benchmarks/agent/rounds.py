"""The rounds: all contenders run in turn for a few seconds each, repeatedly, under the same conditions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.agent import contenders, loads, oscore, programs, thingsboard
from benchmarks.agent.contenders import NATS_READY, TELEGRAF_READY, Server, serving
from benchmarks.agent.loads import Result
from simulators.services import ports
from simulators.services.error import ServiceError
from simulators.services.mosquitto import Mosquitto

SENSORS_FEW, SENSORS_MANY = 64, 256
PACKS, PACK_CONNECTIONS = (100, 500), 4
"""Events in a request; a body of ours has at most 512."""
NATS_BATCH_MAX = 1_000
"""Messages of an atomic batch, by NATS's default."""
HALF = 0.5
MQTT_PER_SECOND = 40_000
"""Number of messages per second of the intended run time."""
SLOW_PATH_PER_SECOND, PLAIN_PER_SECOND = 6_000, 1_000
COAP_MANY = f"CoAP, {SENSORS_MANY} outstanding"
HTTP_PACKS = {pack: f"HTTP, packs of {pack}" for pack in PACKS}
MQTT = "MQTT QoS 1 through mosquitto"
NATS_MANY = f"NATS, sync always, {SENSORS_MANY}"
NATS_BATCHES = {pack: f"NATS, sync always, batches of {pack}" for pack in (*PACKS, NATS_BATCH_MAX)}
BARE = f"bare path in Python, {SENSORS_MANY}"
THINGSBOARD = f"ThingsBoard Gateway, HTTP, single events, {SENSORS_FEW} connections, acks first"
HTTP_SINGLE = f"HTTP, single events, {SENSORS_FEW} connections"


@dataclass(frozen=True, slots=True)
class Turns:
    """What all contenders of a run share, and their results."""

    seconds: float
    folder: Path
    rows: dict[str, list[Result]] = field(default_factory=dict)
    """The results of each row, one per round."""

    @contextmanager
    def place(self) -> Iterator[Path]:
        """Provide a folder that is removed afterwards."""
        with TemporaryDirectory(dir=self.folder) as name:
            yield Path(name) / "run"

    def add(self, row: str, result: Result) -> None:
        """Add a result and print it; raise ServiceError where the server has accepted nothing."""
        if not result.accepted:
            raise ServiceError(f"{row}: no event was accepted")
        self.rows.setdefault(row, []).append(result)
        print(
            f"  {row:<58} {result.per_second:>9,.0f}/s  {result.cpu_us:>7.1f} us  p50 {result.p50_ms:>7.1f} ms"
            f"  p99 {result.p99_ms:>7.1f} ms",
            flush=True,
        )

    def ratios(self, row: str, other: str, value: Callable[[Result], float]) -> list[float]:
        """Return each round's value of a row divided by that of another row in the same round."""
        return [value(ours) / value(theirs) for ours, theirs in zip(self.rows[row], self.rows[other], strict=True)]


Contender = Callable[[Turns], None]
"""Starts a server, loads it, and adds its rows."""


def run(contestants: Sequence[Contender], rounds: int, seconds: float, folder: Path) -> Turns:
    """Measure every contender in each round; every other round in reverse order, so that none always follows one."""
    bench = Turns(seconds, folder)
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", flush=True)
        for contender in contestants if number % 2 == 0 else reversed(contestants):
            contender(bench)
    return bench


def all_contenders(compiled: Path) -> list[Contender]:
    """Return our agent and its peers; report those that are missing on this machine."""
    peers: list[Contender] = [
        partial(_beside, BARE, "bare_path"),
        partial(_beside, "aiocoap alone, same store, 256", "aiocoap_alone"),
    ]
    if programs.libcoap_server() is None:
        print("bench-agent: libcoap left out (Debian: libcoap3-bin)")
    else:
        peers.append(_libcoap)
    if programs.nats_server() is not None:
        peers.append(_nats)
    if programs.telegraf() is not None:
        peers.append(_telegraf)
    if programs.thingsboard_python() is not None:
        peers.append(_thingsboard)
    return [
        partial(_agent, compiled, ""),
        partial(_agent_under_stress, compiled),
        *peers,
        partial(_agent, Path(sys.executable), "pure: "),
    ]


def _agent(python: Path, prefix: str, bench: Turns) -> None:
    with bench.place() as place, contenders.oncegate(place / "agent", python) as server:
        bench.add(f"{prefix}CoAP, {SENSORS_FEW} outstanding", loads.coap(server, SENSORS_FEW, bench.seconds))
        bench.add(f"{prefix}{COAP_MANY}", loads.coap(server, SENSORS_MANY, bench.seconds))
        tagged = loads.coap(server, SENSORS_MANY, bench.seconds, tagged=True)
        bench.add(f"{prefix}{COAP_MANY}, with libcoap's Request-Tag", tagged)
        few, many = PACKS
        bench.add(f"{prefix}{HTTP_PACKS[few]}", loads.http(server, bench.seconds, few, PACK_CONNECTIONS))
        bench.add(f"{prefix}{HTTP_SINGLE}", loads.http(server, bench.seconds, 1, SENSORS_FEW))
        bench.add(f"{prefix}{HTTP_PACKS[many]}", loads.http(server, bench.seconds, many, PACK_CONNECTIONS))
    with (
        bench.place() as place,
        Mosquitto(place / "broker") as broker,
        contenders.oncegate(place / "agent", python, mqtt_port=broker.port) as server,
    ):
        published = loads.mqtt(server, broker.port, int(bench.seconds * MQTT_PER_SECOND))
        bench.add(f"{prefix}{MQTT}", published)


def _agent_under_stress(python: Path, bench: Turns) -> None:
    seconds = bench.seconds
    with bench.place() as place, contenders.oncegate(place / "agent", python) as server:
        full = loads.coap(server, SENSORS_MANY, seconds)
        half = loads.coap(server, SENSORS_MANY, seconds, rate=full.per_second * HALF)
        bench.add("CoAP, half the full rate", half)
        with loads.flood(server.port, seconds, SLOW_PATH_PER_SECOND):
            beside = loads.coap(server, SENSORS_FEW, seconds, rate=PLAIN_PER_SECOND)
        bench.add("CoAP, 1,000/s beside 6,000 slow-path/s", beside)
    with bench.place() as place:
        credentials = oscore.credentials(place)
        with contenders.oncegate(place / "agent", python, credentials=credentials) as server:
            bench.add(f"CoAP with OSCORE, {oscore.OUTSTANDING} outstanding", oscore.post(server, place))
    for slower in (2, 10):
        with bench.place() as place, contenders.oncegate(place / "agent", python, sync_ms=slower) as server:
            bench.add(f"CoAP, fsync {slower} ms slower, {SENSORS_MANY}", loads.coap(server, SENSORS_MANY, seconds))


def _beside(row: str, module: str, bench: Turns) -> None:
    with bench.place() as place, contenders.beside(place, module) as server:
        bench.add(row, loads.coap(server, SENSORS_MANY, bench.seconds))


def _libcoap(bench: Turns) -> None:
    with bench.place() as place, contenders.libcoap(place) as server:
        load = loads.coap(server, SENSORS_MANY, bench.seconds, method=loads.PUT, path="example_data")
        bench.add("libcoap, stores nothing, 256", load)


def _nats(bench: Turns) -> None:
    loaded = (
        (f"NATS, sync always, {SENSORS_FEW}", SENSORS_FEW, 1),
        (NATS_MANY, SENSORS_MANY, 1),
        *((row, PACK_CONNECTIONS, pack) for pack, row in NATS_BATCHES.items()),
    )
    for row, outstanding, pack in loaded:
        (port,) = ports.free(1)
        with bench.place() as place, serving(Server(contenders.nats(place, port), port), NATS_READY) as server:
            bench.add(row, loads.nats(server, outstanding, bench.seconds, pack))


def _telegraf(bench: Turns) -> None:
    settings = 'flush_interval = "100ms"\nmetric_batch_size = 1000\nmetric_buffer_limit = 1000000'
    with bench.place() as place, Mosquitto(place / "broker") as broker:
        lines = place / "events"
        output = f'[[outputs.file]]\nfiles = ["{lines}"]\ndata_format = "influx"\n'
        process = contenders.telegraf(place / "telegraf", settings, contenders.from_mqtt(broker.port), output)
        with serving(Server(process, broker.port, lines=lines), TELEGRAF_READY) as server:
            load = loads.mqtt(server, broker.port, int(bench.seconds * MQTT_PER_SECOND))
        bench.add("Telegraf, MQTT QoS 1 to a file, no sync", load)
    with bench.place() as place, Mosquitto(place) as broker:
        bench.add("mosquitto, QoS 1", loads.mosquitto(Server(broker.process, broker.port), bench.seconds))


def _thingsboard(bench: Turns) -> None:
    with (
        bench.place() as place,
        Mosquitto(place / "broker") as platform,
        thingsboard.run(place / "gateway", platform.port) as server,
    ):
        load = loads.http(server, bench.seconds, 1, SENSORS_FEW, path=thingsboard.PATH)
        bench.add(THINGSBOARD, load)
