"""Memory growth at a steady load on all inputs, without Kafka."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import report
from benchmarks.agent import contenders, loads
from benchmarks.agent.loads import ClientLoad
from benchmarks.report import Figure
from simulators.services.mosquitto import Mosquitto

COAP_PER_SECOND = 900
MQTT_PER_SECOND = 60
PACK, PACKS_PER_SECOND = 10, 4
IDLE_MB, LOADED_MB = 52.0, 72.0
"""Goals, in megabytes of 10^6 bytes."""


def figures(python: Path, minutes: float, folder: Path) -> list[Figure]:
    """Run the agent for some time at about 1,000 requests per second; return its resident memory before and after."""
    seconds = minutes * 60
    with (
        TemporaryDirectory(dir=folder) as name,
        Mosquitto(Path(name) / "broker") as broker,
        contenders.oncegate(Path(name) / "agent", python, mqtt_port=broker.port) as server,
    ):
        time.sleep(2)
        idle = server.resident_bytes()
        first = server.stored()
        start = time.monotonic()
        other = threading.Thread(
            target=_every_second, args=(seconds, lambda: loads.mqtt_once(broker.port, MQTT_PER_SECOND))
        )
        other.start()
        packs = ClientLoad("http", server.http_port, 1, seconds, loads.HTTP_PATH, PACKS_PER_SECOND, pack=PACK).start()
        coap = ClientLoad("coap", server.port, 64, seconds, "events", COAP_PER_SECOND).start()
        coap.communicate()
        other.join()
        packs.communicate()
        accepted = server.stored() - first
        end = server.resident_bytes()
        rate = accepted / (time.monotonic() - start)
    name = f"memory, {minutes:g} min at {rate:,.0f} events/s"
    return [
        report.against("memory, idle", idle / 1e6, "MB", IDLE_MB),
        report.against(name, end / 1e6, "MB", LOADED_MB, accepted=accepted),
    ]


def _every_second(seconds: float, work: Callable[[], None]) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        began = time.monotonic()
        work()
        time.sleep(max(0.0, 1.0 - (time.monotonic() - began)))
