"""The loads: each drives one server for some seconds and returns the accepted events and the latencies."""

import json
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

from benchmarks.agent import programs
from benchmarks.agent.contenders import Server
from simulators.services.error import ServiceError

POST, PUT = 2, 3
HTTP_PATH = "/api/v1/events"
PATIENCE_SECONDS = 60
FLOOD_SHARE_MIN = 0.95
_BURST, _AHEAD = 50, 1_000
"""Messages per burst, and the largest number of messages that mosquitto has not acknowledged."""
_MANY = 1 << 40
_IDS = count(time.time_ns())


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one load."""

    accepted: int
    seconds: float
    cpu_seconds: float
    """Of the server."""
    p99_ms: float = 0.0
    refused: int = 0

    def __post_init__(self) -> None:
        """Raise ServiceError where the server has accepted nothing."""
        if not self.accepted:
            raise ServiceError("no event was accepted")

    def __str__(self) -> str:
        return f"{self.per_second:,.0f}/s, {self.cpu_us:.1f} us, p99 {self.p99_ms:.1f} ms"

    @property
    def per_second(self) -> float:
        """Accepted events per second."""
        return self.accepted / self.seconds

    @property
    def cpu_us(self) -> float:
        """The server's CPU time per accepted event, in microseconds."""
        return self.cpu_seconds / self.accepted * 1e6


@dataclass(frozen=True, slots=True)
class ClientLoad:
    """Clients that the C program simulates, each with one outstanding request."""

    protocol: str
    """`coap`, `coap-tagged` (with a Request-Tag), `nats` or `http`."""
    port: int
    clients: int
    seconds: float
    path: str
    """The path, or the subject of NATS."""
    rate: float = 0.0
    """The total number of requests per second; 0: each client sends its next request after its last answer."""
    method: int = POST
    """The code of a CoAP request."""
    forget: bool = False
    """Whether no answer is awaited (CoAP only)."""
    pack: int = 1
    """Events in one request (more than one for HTTP, and for NATS as an atomic batch)."""

    def start(self) -> subprocess.Popen[str]:
        """Start the program; it prints its results as JSON at the end."""
        how = (self.protocol, self.port, self.clients, self.seconds, self.rate, self.method, self.path)
        words = map(str, (*how, time.time_ns(), int(self.forget), self.pack))
        return subprocess.Popen([str(programs.load()), *words], stdout=subprocess.PIPE, text=True)


def coap(
    server: Server,
    sensors: int,
    seconds: float,
    *,
    rate: float = 0.0,
    method: int = POST,
    path: str = "events",
    tagged: bool = False,
) -> Result:
    """Run CoAP sensors, each of which sends its next event after the last answer, or all at a total rate."""
    protocol = "coap-tagged" if tagged else "coap"
    return _measured(server, ClientLoad(protocol, server.port, sensors, seconds, path, rate, method))


@contextmanager
def flood(port: int, seconds: float, rate: float) -> Iterator[None]:
    """Flood with slow-path requests whose answers are not awaited; raise ServiceError where too few were sent."""
    with ClientLoad("coap", port, 64, seconds, "slow-path", rate, PUT, forget=True).start() as program:
        yield
        printed = program.communicate()[0]
    sent = 0 if program.returncode else json.loads(printed)["sent"]
    if sent < FLOOD_SHARE_MIN * seconds * rate:
        raise ServiceError(f"flood: {sent:,} requests were sent instead of {seconds * rate:,.0f}")


def http(server: Server, seconds: float, pack: int, connections: int, path: str = HTTP_PATH) -> Result:
    """Post packs of events over persistent connections, one outstanding on each."""
    return _measured(server, ClientLoad("http", server.http_port, connections, seconds, path, pack=pack))


def mqtt(server: Server, broker_port: int, events: int) -> Result:
    """Publish at QoS 1 through a broker, and wait until the agent has stored everything."""
    before, first, start = server.cpu_seconds(), server.stored(), time.monotonic()
    mqtt_once(broker_port, events)
    _until(lambda: server.stored() - first >= events)
    return Result(events, time.monotonic() - start, server.cpu_seconds() - before)


def mqtt_once(broker_port: int, events: int) -> None:
    """Publish events at QoS 1 over a connection of their own."""
    with _broker(broker_port) as broker:
        for _ in _published(broker, events):
            pass


def mosquitto(server: Server, seconds: float) -> Result:
    """Publish at QoS 1 and count mosquitto's own PUBACKs, which do not imply durability."""
    before, start = server.cpu_seconds(), time.monotonic()
    with _broker(server.port) as broker:
        steps = _published(broker, _MANY)
        acked = 0
        while time.monotonic() - start < seconds:
            acked = next(steps)
    return Result(acked, time.monotonic() - start, server.cpu_seconds() - before)


def nats(server: Server, outstanding: int, seconds: float, pack: int = 1) -> Result:
    """Publish to JetStream over as many connections; await each message's ack, or that of each atomic batch."""
    create_stream(("127.0.0.1", server.port))
    return _measured(server, ClientLoad("nats", server.port, outstanding, seconds, "e", pack=pack))


def create_stream(address: tuple[str, int]) -> None:
    """Create the stream `E`, which keeps messages of the subject `e` on disk."""
    request = b'{"name":"E","subjects":["e"],"storage":"file","allow_atomic":true}'
    with socket.create_connection(address, timeout=PATIENCE_SECONDS) as stream:
        lines = stream.makefile("rb")
        lines.readline()
        stream.sendall(b'CONNECT {"verbose":false}\r\nSUB i.c 1\r\n')
        stream.sendall(b"PUB $JS.API.STREAM.CREATE.E i.c %d\r\n%s\r\n" % (len(request), request))
        while not lines.readline().startswith(b"MSG i.c"):
            pass


def _measured(server: Server, load: ClientLoad) -> Result:
    """Run a load, and return its results with the server's CPU time."""
    before = server.cpu_seconds()
    with load.start() as program:
        printed = program.communicate()[0]
    if program.returncode:
        raise SystemExit(f"bench-agent: the load has failed: {load}")
    figures = json.loads(printed)
    named = {name: figures[name] for name in ("accepted", "seconds", "p99_ms", "refused")}
    return Result(cpu_seconds=server.cpu_seconds() - before, **named)


@contextmanager
def _broker(port: int) -> Iterator[socket.socket]:
    """Connect by MQTT 3.1.1."""
    with socket.create_connection(("127.0.0.1", port)) as broker:
        broker.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        broker.settimeout(PATIENCE_SECONDS)
        broker.sendall(b"\x10\x10\x00\x04MQTT\x04\x02\x00\x00\x00\x04load")
        broker.recv(4)
        yield broker


def _published(broker: socket.socket, events: int) -> Iterator[int]:
    """Publish at QoS 1 until everything is acknowledged; yield the acknowledged number at each step."""
    published = acked = 0
    left = b""
    while acked < events:
        while published < events and published - acked < _AHEAD:
            burst = min(_BURST, events - published)
            broker.sendall(b"".join(_publish(published + place) for place in range(burst)))
            published += burst
        left += broker.recv(65_536)
        acked += len(left) // 4
        left = left[len(left) // 4 * 4 :]
        yield acked


def event() -> bytes:
    """Return an event as JSON, with a unique id."""
    number = next(_IDS)
    return b'{"id":%d,"data":{"temperature":%d.5,"humidity":%d}}' % (number, number % 30, number % 100)


def _publish(number: int) -> bytes:
    topic, body = b"bench/urn:x:%d" % (number % 100), event()
    rest = len(topic).to_bytes(2, "big") + topic + (number % 65_535 + 1).to_bytes(2, "big") + body
    return b"\x32" + bytes(length(len(rest))) + rest


def length(size: int) -> Iterator[int]:
    """Encode a remaining length (MQTT 3.1.1 section 2.2.3)."""
    while size > 127:
        yield size & 127 | 128
        size >>= 7
    yield size


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("bench-agent: not within a minute: everything published is stored")
        time.sleep(0.01)
