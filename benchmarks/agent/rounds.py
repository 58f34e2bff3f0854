"""The rounds: all contenders run in turn for a few seconds each, repeatedly, under the same conditions."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.agent import contenders, loads, oscore, programs, thingsboard
from benchmarks.agent.contenders import Server
from benchmarks.agent.loads import Result
from simulators.services.mosquitto import Mosquitto

SENSORS_FEW, SENSORS_MANY = 64, 256
HALF = 0.5
MQTT_PER_SECOND = 8_000
"""Number of messages per second of the intended run time."""
ODD_PER_SECOND, ORDINARY_PER_SECOND = 6_000, 1_000


@dataclass(slots=True)
class Measured:
    """The results of each row, one per round."""

    rows: dict[str, list[Result]] = field(default_factory=dict)

    def add(self, row: str, result: Result) -> None:
        """Add a result and print it."""
        self.rows.setdefault(row, []).append(result)
        print(
            f"  {row:<40} {result.per_second:>9,.0f}/s  {result.cpu_us:>7.1f} us  p50 {result.p50_ms:>7.1f} ms"
            f"  p99 {result.p99_ms:>7.1f} ms",
            flush=True,
        )

    def median(self, row: str, value: Callable[[Result], float]) -> float:
        """Return the median over the rounds."""
        return statistics.median(value(result) for result in self.rows[row])


def run(rounds: int, seconds: float, folder: Path) -> Measured:
    """Measure every row, round by round; report and leave out contenders that are missing on this machine."""
    measured = Measured()
    has_nats, has_libcoap = programs.nats_server() is not None, programs.libcoap_server() is not None
    has_telegraf = programs.telegraf() is not None
    if not has_libcoap:
        print("bench-agent: libcoap left out (Debian: libcoap3-bin)")
    has_thingsboard = programs.thingsboard_python() is not None
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", flush=True)
        _ours(measured, seconds, folder)
        with _folder(folder) as place, contenders.aiocoap_alone(place) as server:
            measured.add("aiocoap alone, same store, 256", loads.coap(server, SENSORS_MANY, seconds))
        if has_libcoap:
            with _folder(folder) as place, contenders.libcoap(place) as server:
                load = loads.coap(server, SENSORS_MANY, seconds, method=loads.PUT, path="example_data")
                measured.add("libcoap, stores nothing, 256", load)
        if has_nats:
            for outstanding in (SENSORS_FEW, SENSORS_MANY):
                with _folder(folder) as place, contenders.nats(place) as server:
                    measured.add(f"NATS, sync always, {outstanding}", loads.nats(server, outstanding, seconds))
        if has_telegraf:
            with (
                _folder(folder) as place,
                Mosquitto(place / "broker") as broker,
                contenders.telegraf(place / "telegraf", broker.port) as server,
            ):
                load = loads.mqtt(server, broker.port, int(seconds * MQTT_PER_SECOND))
                measured.add("Telegraf, MQTT QoS 1 to a file, no sync", load)
        if has_thingsboard:
            with (
                _folder(folder) as place,
                Mosquitto(place / "broker") as platform,
                thingsboard.run(place / "gateway", platform.port) as server,
            ):
                load = loads.http(server, seconds, pack=1, connections=SENSORS_FEW, path=thingsboard.PATH)
                measured.add("ThingsBoard Gateway, HTTP, acks first", load)
        with _folder(folder) as place, Mosquitto(place) as broker:
            measured.add("mosquitto, QoS 1", loads.mosquitto(Server(broker.process, broker.port), seconds))
    return measured


def _ours(measured: Measured, seconds: float, folder: Path) -> None:
    with _folder(folder) as place, contenders.oncegate(place / "agent") as server:
        measured.add("CoAP, 64 outstanding", loads.coap(server, SENSORS_FEW, seconds))
        full = loads.coap(server, SENSORS_MANY, seconds)
        measured.add("CoAP, 256 outstanding", full)
        half = loads.coap(server, SENSORS_MANY, seconds, rate=full.per_second * HALF)
        measured.add("CoAP, half the full rate", half)
        measured.add("HTTP, packs of 100", loads.http(server, seconds))
        odd = loads.flood(server.port, seconds, ODD_PER_SECOND)
        beside = loads.coap(server, SENSORS_FEW, seconds, rate=ORDINARY_PER_SECOND)
        odd.communicate()
        measured.add("CoAP, 1,000/s beside 6,000 odd/s", beside)
    with _folder(folder) as place:
        credentials = oscore.credentials(place)
        with contenders.oncegate(place / "agent", credentials=credentials) as server:
            measured.add(f"CoAP with OSCORE, {oscore.OUTSTANDING} outstanding", oscore.post(server, place))
    for slower in (2, 10):
        with _folder(folder) as place, contenders.oncegate(place / "agent", sync_ms=slower) as server:
            measured.add(f"CoAP, fsync {slower} ms slower, 256", loads.coap(server, SENSORS_MANY, seconds))
    with (
        _folder(folder) as place,
        Mosquitto(place / "broker") as broker,
        contenders.oncegate(place / "agent", mqtt_port=broker.port) as server,
    ):
        measured.add("MQTT QoS 1 through mosquitto", loads.mqtt(server, broker.port, int(seconds * MQTT_PER_SECOND)))


@contextmanager
def _folder(parent: Path) -> Iterator[Path]:
    with TemporaryDirectory(dir=parent) as name:
        yield Path(name) / "run"
