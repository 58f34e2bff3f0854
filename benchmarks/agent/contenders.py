"""The measured servers, each a process on the loopback interface with a folder of its own."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from agent.store.layout import FILE_NAME
from agent.store.schema import database, tables
from benchmarks import usage
from benchmarks.agent import programs
from benchmarks.agent.programs import Form
from simulators.services import ports
from simulators.services.process import Command, Process

READY = "agent=ready"


@dataclass(slots=True)
class Server:
    """A running server."""

    process: Process
    port: int
    more_ports: Mapping[str, int] = field(default_factory=dict)
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
def oncegate(
    folder: Path,
    form: Form,
    *,
    sync_ms: float = 0.0,
    mqtt_port: int | None = None,
    credentials: Path | None = None,
) -> Iterator[Server]:
    """Run a form of the agent without Kafka; `sync_ms` slows its disk down, `credentials` are OSCORE's."""
    (coap,), (http,) = ports.free(1, socket.SOCK_DGRAM), ports.free(1)
    folder.mkdir(parents=True)
    # Requests that are protected beforehand cannot carry the Echo value of the answer before.
    oscore = "" if credentials is None else f'[coap.oscore]\ncredentials_dir = "{credentials}"\nfreshness = "start"\n'
    configuration = folder / "oncegate.toml"
    mqtt = "" if mqtt_port is None else f'[mqtt]\nenabled = true\nhost = "127.0.0.1"\nport = {mqtt_port}\n'
    subscription = '[[mqtt.subscriptions]]\ntopic = "bench/{device}"\nformat = "json"\n' if mqtt else ""
    configuration.write_text(
        f'[gateway]\nid = "bench"\nstate_dir = "{folder / "state"}"\n[coap]\nbind = "[::1]:{coap}"\n{oscore}'
        f'[store]\nmax_bytes = "8GiB"\n[http]\nbind = "127.0.0.1:{http}"\n'
        f'[kafka]\nbootstrap_servers = "127.0.0.1:1"\n{mqtt}{subscription}'
    )
    # Without the working directory, in which the sources would be found before the installed form.
    command = (str(form.python), "-P", "-m", "agent.cli.main", "run", "--config", str(configuration))
    environment = {"LD_PRELOAD": str(programs.slow_sync()), "SLOW_SYNC_MS": str(sync_ms)} if sync_ms else {}
    with running("oncegate", command, folder, environment) as process:
        process.wait_for_log(READY)
        if mqtt:
            process.wait_for_log("mqtt=connected")
        yield Server(process, coap, {"http": http}, folder / "state" / FILE_NAME)


@contextmanager
def aiocoap_alone(folder: Path) -> Iterator[Server]:
    """Run aiocoap's own server in front of the same pipeline and store."""
    (port,) = ports.free(1, socket.SOCK_DGRAM)
    command = (sys.executable, "-m", "benchmarks.agent.aiocoap_alone", str(folder / "state"), str(port))
    with running("aiocoap", command, folder, {}) as process:
        process.wait_for_log("ready")
        yield Server(process, port)


@contextmanager
def bare_path(folder: Path) -> Iterator[Server]:
    """Run the limit of Python on this path."""
    (port,) = ports.free(1, socket.SOCK_DGRAM)
    folder.mkdir(parents=True)
    command = (sys.executable, "-m", "benchmarks.agent.bare_path", str(port), str(folder / "events"))
    with running("bare", command, folder, {}) as process:
        process.wait_for_log("ready")
        yield Server(process, port)


@contextmanager
def libcoap(folder: Path) -> Iterator[Server]:
    """Run libcoap's example server, which stores nothing."""
    (port,) = ports.free(1, socket.SOCK_DGRAM)
    command = (str(programs.libcoap_server()), "-A", "::1", "-p", str(port), "-v", "0")
    with running("libcoap", command, folder, {}) as process:
        process.wait_until(lambda: _udp_taken(port), f"listens on port {port}")
        yield Server(process, port)


@contextmanager
def nats(folder: Path) -> Iterator[Server]:
    """Run NATS with a JetStream that syncs before each ack."""
    (port,) = ports.free(1)
    folder.mkdir(parents=True)
    settings = folder / "nats.conf"
    settings.write_text(
        f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{folder / "state"}", sync_interval: always }}\n'
    )
    with running("nats", (str(programs.nats_server()), "-c", str(settings)), folder, {}) as process:
        process.wait_for_log("Server is ready")
        yield Server(process, port)


@contextmanager
def telegraf(folder: Path, mqtt_port: int) -> Iterator[Server]:
    """Run Telegraf between a broker, whose messages it acks once written, and a file that it never syncs."""
    folder.mkdir(parents=True)
    settings, lines = folder / "telegraf.conf", folder / "events"
    settings.write_text(
        '[agent]\nflush_interval = "100ms"\nmetric_batch_size = 1000\nmetric_buffer_limit = 1000000\n'
        f'[[outputs.file]]\nfiles = ["{lines}"]\ndata_format = "influx"\n'
        f'[[inputs.mqtt_consumer]]\nservers = ["tcp://127.0.0.1:{mqtt_port}"]\ntopics = ["bench/#"]\nqos = 1\n'
        'client_id = "telegraf"\npersistent_session = true\ndata_format = "value"\ndata_type = "string"\n'
    )
    with running("telegraf", (str(programs.telegraf()), "--config", str(settings)), folder, {}) as process:
        process.wait_for_log("Connected [tcp://")
        yield Server(process, mqtt_port, lines=lines)


@contextmanager
def running(
    name: str, command: tuple[str, ...], folder: Path, environment: Mapping[str, str], *, inside: bool = False
) -> Iterator[Process]:
    """Run a server with its log in its folder; with `inside`, that folder is its working directory."""
    where = folder if inside else None
    process = Process(Command(name, command, folder / f"{name}.log", where, environment))
    process.start()
    try:
        yield process
    finally:
        process.kill()


def _udp_taken(port: int) -> bool:
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(("::1", port))
        except OSError:
            return True
        return False
