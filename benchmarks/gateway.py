"""Measure the agent's cost on an idle gateway: size, start, memory, CPU, and written bytes.

The agent is installed as the package installs it, with every input enabled, a real MQTT broker and a real Kafka, which
is then stopped: first with nothing to send, then with a waiting event.
"""

import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

from benchmarks import report
from benchmarks.report import Figure, against
from benchmarks.usage import cpu_seconds, resident_bytes, written_bytes
from simulators.services.kafka.broker import Broker
from simulators.services.mosquitto import Mosquitto
from simulators.services.process import Command, Process

ROOT = Path(__file__).parents[1]
SIZE_MEGABYTES_MAX = 120
MEMORY_MEGABYTES_MAX = 56
CPU_PERCENT_MAX = 0.5
READY_SECONDS_MAX = 1.5
STARTS = 7
SETTLE_SECONDS = 15.0
"""After the start: connections are established, and garbage of the start is collected."""


def main() -> int:
    """Run all measurements, print the table, and write docs/benchmarks/gateway.json."""
    given = report.parse(report.parser("gateway", __doc__))
    seconds = 10.0 if given.quick else 30.0
    with report.build_folder() as folder:
        program = install(folder / "environment")
        size = sum(os.lstat(file).st_size for file in (folder / "environment").rglob("*")) / 1e6
        with Broker(folder / "kafka") as broker, Mosquitto(folder / "mosquitto") as mqtt:
            broker.create_topics()
            file = configure(folder, broker.bootstrap_servers, mqtt.port)
            starts = [start(program, file, folder) for _ in range(STARTS)]
            with ready(program, file, folder) as process:
                figures = [*idle(process, seconds), *unreachable(process, broker, seconds)]
    figures = [
        against("installed", size, "MB", SIZE_MEGABYTES_MAX),
        against("start to READY, median", statistics.median(starts), "s", READY_SECONDS_MAX, starts=starts),
        *figures,
    ]
    return report.conclude("gateway", figures, given, idle_seconds=seconds, starts=STARTS)


def install(folder: Path) -> Path:
    """Install the agent as the package does, and return its program."""
    subprocess.run([ROOT / "packaging" / "environment.sh", folder, folder], check=True)
    subprocess.run([folder / "bin" / "python3", "-m", "compileall", "-q", folder / "lib"], check=True)
    return folder / "bin" / "oncegate"


def configure(folder: Path, bootstrap_servers: str, mqtt_port: int) -> Path:
    """Write a configuration with every input enabled."""
    file = folder / "oncegate.toml"
    file.write_text(
        f'[gateway]\nid = "bench"\nstate_dir = "{folder / "state"}"\n[coap]\nbind = "[::1]:0"\n'
        f'[http]\nbind = "127.0.0.1:0"\n[mqtt]\nenabled = true\nhost = "127.0.0.1"\nport = {mqtt_port}\n'
        f'[kafka]\nbootstrap_servers = "{bootstrap_servers}"\n'
    )
    return file


def start(program: Path, file: Path, folder: Path) -> float:
    """Start and stop the agent; return the seconds until it was ready."""
    began = time.monotonic()
    with ready(program, file, folder):
        return time.monotonic() - began


@contextmanager
def ready(program: Path, file: Path, folder: Path) -> Iterator[Process]:
    """Run the agent with systemd's watchdog; the block begins when it is ready."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        path = folder / "notify"
        path.unlink(missing_ok=True)
        manager.bind(str(path))
        manager.settimeout(60)
        environment = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "60000000"}
        command = Command(
            "agent", (str(program), "run", "--config", str(file)), folder / "agent.log", None, environment
        )
        with Process(command) as process:
            while "READY=1" not in manager.recv(4096).decode():
                pass
            yield process


def idle(process: Process, seconds: float) -> Iterator[Figure]:
    """Measure an idle agent."""
    process.wait_for_log("kafka=reachable")
    process.wait_for_log("mqtt=connected")
    time.sleep(SETTLE_SECONDS)
    written, began = written_bytes(process.pid), time.monotonic()
    yield cpu("CPU, idle", process, seconds)
    per_minute = (written_bytes(process.pid) - written) * 60 / (time.monotonic() - began)
    yield against("memory (RSS), idle", resident_bytes(process.pid) / 1e6, "MB", MEMORY_MEGABYTES_MAX)
    yield against("written to disk, idle", per_minute, "bytes/minute", 0)


def unreachable(process: Process, broker: Broker, seconds: float) -> Iterator[Figure]:
    """Stop Kafka and measure the cost."""
    broker.kill()
    time.sleep(SETTLE_SECONDS)
    yield cpu("CPU, idle, Kafka stopped", process, seconds)
    place = process.log().split("http=listening address=")[1].split()[0]
    event = Request(f"http://{place}/api/v1/events", b'{"device":"urn:a","id":1}', {"Content-Type": "application/json"})
    with urlopen(event, timeout=60):
        process.wait_for_log("kafka=unreachable")
    time.sleep(SETTLE_SECONDS * 2)  # after half a minute the producer expires the event and is discarded
    yield cpu("CPU, Kafka unreachable, an event pending", process, seconds)


def cpu(name: str, process: Process, seconds: float) -> Figure:
    """Measure the CPU share of an idle agent."""
    used, began = cpu_seconds(process.pid), time.monotonic()
    time.sleep(seconds)
    passed = time.monotonic() - began
    return against(name, 100 * (cpu_seconds(process.pid) - used) / passed, "% of a core", CPU_PERCENT_MAX)


if __name__ == "__main__":
    sys.exit(main())
