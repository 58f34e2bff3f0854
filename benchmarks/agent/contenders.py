"""The compared servers: each a process on the loopback interface, in a folder with its settings, data and log."""

import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from agent.store.layout import FILE_NAME
from agent.store.schema import database, tables
from benchmarks import usage
from benchmarks.agent import programs
from simulators.services import ports
from simulators.services.process import Command, Process

AGENT_READY, NATS_READY, TELEGRAF_READY = "agent=ready", "Server is ready", "Connected [tcp://"
"""What the log of each says once it serves; Telegraf's, once it is connected to its broker."""


@dataclass(slots=True)
class Server:
    """A running server."""

    process: Process
    port: int
    http_port: int = 0
    store: Path | None = None
    """The event store's file, where it is ours."""
    lines: Path | None = None
    """The file into which the server writes a line for each event, where it does."""
    _lines_read: int = 0
    _bytes_read: int = 0

    def cpu_seconds(self) -> float:
        """Return the CPU time of all threads, user and system, in seconds."""
        return usage.cpu_seconds(self.process.pid)

    def stored(self) -> int:
        """Return the number of events that are on disk, or at least written to a file."""
        if self.lines is not None:
            return self._count_lines(self.lines)
        assert self.store is not None
        connection = database.open_for_reading(self.store)
        try:
            return tables.last_position(connection)
        finally:
            connection.close()

    def _count_lines(self, file: Path) -> int:
        """Read what the file has in addition: reading all of it each time would take the server's processor."""
        if file.exists():
            with file.open("rb") as lines:
                lines.seek(self._bytes_read)
                fresh = lines.read()
            self._bytes_read += len(fresh)
            self._lines_read += fresh.count(b"\n")
        return self._lines_read

    def resident_bytes(self) -> int:
        """Return the resident memory in bytes."""
        return usage.resident_bytes(self.process.pid)


@contextmanager
def serving(server: Server, ready: str) -> Iterator[Server]:
    """Start a server, wait for this text in its log, and kill it at the end."""
    server.process.start()
    try:
        server.process.wait_for_log(ready)
        yield server
    finally:
        server.process.kill()


@contextmanager
def oncegate(
    folder: Path,
    python: Path,
    *,
    sync_ms: float = 0.0,
    mqtt_port: int | None = None,
    credentials: Path | None = None,
) -> Iterator[Server]:
    """Run an interpreter's agent without Kafka; `sync_ms` slows its disk down, `credentials` are OSCORE's."""
    (coap,), (http,) = ports.free(1, socket.SOCK_DGRAM), ports.free(1)
    # Requests that are protected beforehand cannot carry the Echo value of the answer before.
    oscore = "" if credentials is None else f'[coap.oscore]\ncredentials_dir = "{credentials}"\nfreshness = "start"\n'
    mqtt = "" if mqtt_port is None else f'[mqtt]\nenabled = true\nhost = "127.0.0.1"\nport = {mqtt_port}\n'
    subscription = '[[mqtt.subscriptions]]\ntopic = "bench/{device}"\nformat = "json"\n' if mqtt else ""
    settings = (
        f'[coap]\nbind = "[::1]:{coap}"\n{oscore}[http]\nbind = "127.0.0.1:{http}"\n'
        f'[store]\nmax_bytes = "8GiB"\n[kafka]\nbootstrap_servers = "127.0.0.1:1"\n{mqtt}{subscription}'
    )
    environment = {"LD_PRELOAD": str(programs.slow_sync()), "SLOW_SYNC_MS": str(sync_ms)} if sync_ms else {}
    process = agent(folder, "bench", settings, python, environment)
    with serving(Server(process, coap, http, store=folder / "state" / FILE_NAME), AGENT_READY) as server:
        if mqtt:
            process.wait_for_log("mqtt=connected")
        yield server


def bare_path(folder: Path) -> AbstractContextManager[Server]:
    """Run the limit of Python on this path."""
    (port,) = ports.free(1, socket.SOCK_DGRAM)
    folder.mkdir(parents=True)
    line = (sys.executable, "-m", "benchmarks.agent.bare_path", str(port), str(folder / "state"))
    return serving(Server(Process(Command("bare path", line, folder / "bare_path.log")), port), "ready")


@contextmanager
def libcoap(folder: Path) -> Iterator[Server]:
    """Run libcoap's example server, which stores nothing and logs nothing."""
    (port,) = ports.free(1, socket.SOCK_DGRAM)
    line = (str(programs.libcoap_server()), "-A", "::1", "-p", str(port), "-v", "0")
    with serving(Server(Process(Command("libcoap", line, folder / "libcoap.log")), port), "") as server:
        server.process.wait_until(lambda: _udp_taken(port), f"listens on port {port}")
        yield server


def agent(
    folder: Path,
    name: str,
    settings: str,
    python: Path = Path(sys.executable),
    environment: Mapping[str, str] | None = None,
) -> Process:
    """Prepare the agent that an interpreter finds, with these sections beside [gateway]."""
    gateway = f'[gateway]\nid = "{name}"\nstate_dir = "{folder / "state"}"\n'
    file = _written(folder / "oncegate.toml", gateway + settings)
    # Without the working directory, in which the sources would be found before the installed form.
    line = (str(python), "-P", "-m", "agent.cli.main", "run", "--config", file)
    return Process(Command("agent", line, folder / "agent.log", environment=environment or {}))


def nats(folder: Path, port: int) -> Process:
    """Prepare NATS with a JetStream that syncs before each ack."""
    stream = f'jetstream {{ store_dir: "{folder / "state"}", sync_interval: always }}'
    file = _written(folder / "nats.conf", f'listen: "127.0.0.1:{port}"\n{stream}\n')
    return Process(Command("nats", (str(programs.nats_server()), "-c", file), folder / "nats.log"))


def telegraf(folder: Path, settings: str, source: str, destination: str) -> Process:
    """Prepare Telegraf with lines of its section [agent], an input and an output."""
    file = _written(folder / "telegraf.conf", f"[agent]\n{settings}\n{destination}{source}")
    return Process(Command("telegraf", (str(programs.telegraf()), "--config", file), folder / "telegraf.log"))


def from_mqtt(port: int) -> str:
    """Return Telegraf's input from a broker, whose messages it acks once written."""
    return (
        f'[[inputs.mqtt_consumer]]\nservers = ["tcp://127.0.0.1:{port}"]\ntopics = ["bench/#"]\nqos = 1\n'
        'client_id = "telegraf"\npersistent_session = true\ndata_format = "value"\ndata_type = "string"\n'
    )


def to_kafka(servers: str, topic: str) -> str:
    """Return Telegraf's output to Kafka, by its idempotent producer with zstd."""
    return (
        f'[[outputs.kafka]]\nbrokers = ["{servers}"]\ntopic = "{topic}"\ndata_format = "influx"\nrequired_acks = -1\n'
        'idempotent_writes = true\ncompression_codec = 4\nstartup_error_behavior = "retry"\n'
    )


def _written(file: Path, text: str) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return str(file)


def _udp_taken(port: int) -> bool:
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(("::1", port))
        except OSError:
            return True
        return False
