"""Measure the gateway's inputs beside alternatives, print the table, and write docs/benchmarks/agent.json."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import report
from benchmarks.agent import contenders, loads, memory, oscore, programs, thingsboard
from benchmarks.agent.contenders import NATS_READY, TELEGRAF_READY, Server, serving
from benchmarks.agent.loads import Result
from benchmarks.report import Figure
from benchmarks.rounds import Contender, Rounds
from simulators.services import ports
from simulators.services.mosquitto import Mosquitto

ROUNDS = 3
SENSORS_FEW, SENSORS_MANY = 64, 256
PACKS, PACK_CONNECTIONS = (100, 500), 4
"""Events in a request; a body of ours has at most 512."""
NATS_BATCH_MAX = 1_000
"""Messages of an atomic batch, by NATS's default."""
HALF = 0.5
MQTT_PER_SECOND = 40_000
"""Number of messages per second of the intended run time."""
SLOW_PATH_PER_SECOND, PLAIN_PER_SECOND = 6_000, 1_000
SLOWER_MS = 10
COAP_MANY = f"CoAP, {SENSORS_MANY} outstanding"
COAP_HALF, COAP_BESIDE = "CoAP, half the full rate", "CoAP, 1,000/s beside 6,000 slow-path/s"
COAP_SLOWER = f"CoAP, fsync {SLOWER_MS} ms slower, {SENSORS_MANY}"
HTTP_PACKS = {pack: f"HTTP, packs of {pack}" for pack in PACKS}
MQTT = "MQTT QoS 1 through mosquitto"
NATS_MANY = f"NATS, sync always, {SENSORS_MANY}"
NATS_BATCHES = {pack: f"NATS, sync always, batches of {pack}" for pack in (*PACKS, NATS_BATCH_MAX)}
BARE = f"bare path in Python, {SENSORS_MANY}"

VALUES: Mapping[str, tuple[Callable[[Result], float], str]] = {
    "rate": (lambda one: one.per_second, "events/s"),
    "CPU": (lambda one: one.cpu_us, "us/event"),
    "p99": (lambda one: one.p99_ms, "ms"),
}
GOALS = {
    f"{HTTP_PACKS[100]}: CPU": 18.0,
    f"{MQTT}: CPU": 90.0,
    COAP_SLOWER: 10_000.0,
    f"{COAP_SLOWER}: p99": 60.0,
    f"{COAP_HALF}: p99": 25.0,
    COAP_BESIDE: 950.0,
    f"{COAP_BESIDE}: p99": 300.0,
}
COMPARED: tuple[tuple[str, str, str, Mapping[str, float | None]], ...] = (
    ("CoAP against NATS", COAP_MANY, NATS_MANY, {"rate": 4.0, "CPU": 0.6}),
    *(
        (f"HTTP against NATS, packs of {pack}", row, NATS_BATCHES[pack], {"rate": None, "CPU": None})
        for pack, row in HTTP_PACKS.items()
    ),
    ("CoAP against the bare path", COAP_MANY, BARE, {"rate": 0.75}),
)
"""Our rows as multiples of others, with goals."""


def main() -> int:
    """Run all measurements; exit status 1 where a contender failed."""
    parser = report.parser("agent", __doc__, rounds=ROUNDS)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each run (default: 2)")
    parser.add_argument("--minutes", type=float, default=1.0, help="of the run for the memory (default: 1; 0: none)")
    given = report.parse(parser)
    if given.quick:
        given.seconds, given.minutes = 1.0, 0.25
    rounds = Rounds[Result]()
    with report.build_folder() as folder:
        bench = AgentBench(programs.compiled(), given.seconds, folder)
        rounds.run(bench.contenders(), given.rounds)
        held = memory.figures(bench.compiled, given.minutes, folder) if given.minutes else []
    settings = {"rounds": given.rounds, "seconds": given.seconds, "memory_minutes": given.minutes}
    return report.conclude("agent", [*_figures(rounds), *held], given, rounds.failed, **settings)


def _figures(rounds: Rounds[Result]) -> Iterator[Figure]:
    for row, results in rounds.rows.items():
        refused = sum(one.refused for one in results.values())
        for what, (value, unit) in VALUES.items():
            name = row if what == "rate" else f"{row}: {what}"
            if all(each := [value(one) for one in results.values()]):
                yield report.middle(name, each, unit, GOALS.get(name), at_least=what == "rate", refused=refused)
    for name, row, other, goals in COMPARED:
        for what, goal in goals.items():
            yield from rounds.compared(f"{name}: {what}", row, other, VALUES[what][0], goal, at_least=what == "rate")


@dataclass(frozen=True, slots=True)
class AgentBench:
    """The contenders: each starts a server, loads it, and yields its rows."""

    compiled: Path
    """The interpreter of the compiled form."""
    seconds: float
    """Of each load."""
    folder: Path

    def contenders(self) -> Mapping[str, Contender[Result]]:
        """Return our agent and its peers; report those that are missing on this machine."""
        peers: dict[str, Contender[Result] | None] = {
            "libcoap": self._libcoap if programs.libcoap_server() is not None else None,
            "NATS": self._nats if programs.nats_server() is not None else None,
            "Telegraf": self._telegraf if programs.telegraf() is not None else None,
            "ThingsBoard Gateway": self._thingsboard if programs.thingsboard_python() is not None else None,
        }
        if peers["libcoap"] is None:
            print("bench-agent: libcoap left out (Debian: libcoap3-bin)")
        return {
            "agent": self._agent,
            "agent under stress": self._agent_under_stress,
            "bare path": self._bare_path,
            **{name: peer for name, peer in peers.items() if peer is not None},
            "mosquitto": self._mosquitto,
            "pure": self._pure,
        }

    @contextmanager
    def _place(self) -> Iterator[Path]:
        """Provide a folder that is removed afterwards."""
        with TemporaryDirectory(dir=self.folder) as name:
            yield Path(name) / "run"

    def _agent(self) -> Iterator[tuple[str, Result]]:
        seconds = self.seconds
        with self._place() as place, contenders.oncegate(place / "agent", self.compiled) as server:
            yield f"CoAP, {SENSORS_FEW} outstanding", loads.coap(server, SENSORS_FEW, seconds)
            yield COAP_MANY, loads.coap(server, SENSORS_MANY, seconds)
            tagged = loads.coap(server, SENSORS_MANY, seconds, tagged=True)
            yield f"{COAP_MANY}, with libcoap's Request-Tag", tagged
            few, many = PACKS
            yield HTTP_PACKS[few], loads.http(server, seconds, few, PACK_CONNECTIONS)
            yield f"HTTP, single events, {SENSORS_FEW} connections", loads.http(server, seconds, 1, SENSORS_FEW)
            yield HTTP_PACKS[many], loads.http(server, seconds, many, PACK_CONNECTIONS)
        with (
            self._place() as place,
            Mosquitto(place / "broker") as broker,
            contenders.oncegate(place / "agent", self.compiled, mqtt_port=broker.port) as server,
        ):
            yield MQTT, loads.mqtt(server, broker.port, int(seconds * MQTT_PER_SECOND))

    def _agent_under_stress(self) -> Iterator[tuple[str, Result]]:
        seconds = self.seconds
        with self._place() as place, contenders.oncegate(place / "agent", self.compiled) as server:
            full = loads.coap(server, SENSORS_MANY, seconds)
            yield COAP_HALF, loads.coap(server, SENSORS_MANY, seconds, rate=full.per_second * HALF)
            with loads.flood(server.port, seconds, SLOW_PATH_PER_SECOND):
                beside = loads.coap(server, SENSORS_FEW, seconds, rate=PLAIN_PER_SECOND)
            yield COAP_BESIDE, beside
        with self._place() as place:
            credentials = oscore.credentials(place)
            with contenders.oncegate(place / "agent", self.compiled, credentials=credentials) as server:
                yield f"CoAP with OSCORE, {oscore.OUTSTANDING} outstanding", oscore.post(server, place)
        with self._place() as place, contenders.oncegate(place / "agent", self.compiled, sync_ms=SLOWER_MS) as server:
            yield COAP_SLOWER, loads.coap(server, SENSORS_MANY, seconds)

    def _pure(self) -> Iterator[tuple[str, Result]]:
        with self._place() as place, contenders.oncegate(place / "agent", Path(sys.executable)) as server:
            yield f"pure: {COAP_MANY}", loads.coap(server, SENSORS_MANY, self.seconds)

    def _bare_path(self) -> Iterator[tuple[str, Result]]:
        with self._place() as place, contenders.bare_path(place) as server:
            yield BARE, loads.coap(server, SENSORS_MANY, self.seconds)

    def _libcoap(self) -> Iterator[tuple[str, Result]]:
        with self._place() as place, contenders.libcoap(place) as server:
            load = loads.coap(server, SENSORS_MANY, self.seconds, method=loads.PUT, path="example_data")
            yield "libcoap, stores nothing, 256", load

    def _nats(self) -> Iterator[tuple[str, Result]]:
        loaded = (
            (f"NATS, sync always, {SENSORS_FEW}", SENSORS_FEW, 1),
            (NATS_MANY, SENSORS_MANY, 1),
            *((row, PACK_CONNECTIONS, pack) for pack, row in NATS_BATCHES.items()),
        )
        for row, outstanding, pack in loaded:
            (port,) = ports.free(1)
            with self._place() as place, serving(Server(contenders.nats(place, port), port), NATS_READY) as server:
                yield row, loads.nats(server, outstanding, self.seconds, pack)

    def _telegraf(self) -> Iterator[tuple[str, Result]]:
        settings = 'flush_interval = "100ms"\nmetric_batch_size = 1000\nmetric_buffer_limit = 1000000'
        with self._place() as place, Mosquitto(place / "broker") as broker:
            lines = place / "events"
            output = f'[[outputs.file]]\nfiles = ["{lines}"]\ndata_format = "influx"\n'
            process = contenders.telegraf(place / "telegraf", settings, contenders.from_mqtt(broker.port), output)
            with serving(Server(process, broker.port, lines=lines), TELEGRAF_READY) as server:
                load = loads.mqtt(server, broker.port, int(self.seconds * MQTT_PER_SECOND))
            yield "Telegraf, MQTT QoS 1 to a file, no sync", load

    def _mosquitto(self) -> Iterator[tuple[str, Result]]:
        with self._place() as place, Mosquitto(place) as broker:
            yield "mosquitto, QoS 1", loads.mosquitto(Server(broker.process, broker.port), self.seconds)

    def _thingsboard(self) -> Iterator[tuple[str, Result]]:
        with (
            self._place() as place,
            Mosquitto(place / "broker") as platform,
            thingsboard.run(place / "gateway", platform.port) as server,
        ):
            load = loads.http(server, self.seconds, 1, SENSORS_FEW, path=thingsboard.PATH)
            yield f"ThingsBoard Gateway, HTTP, single events, {SENSORS_FEW} connections, acks first", load


if __name__ == "__main__":
    sys.exit(main())
