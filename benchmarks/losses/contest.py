"""One run: sensors send events until they are acknowledged, while power, uplink and responses fail."""

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random

from benchmarks.losses.gateways import Gateway

EVENTS, SENSORS = 2_000, 20
RESPONSE_LOSS = 0.2
SEED = 7
"""Of the lost responses."""
RETRY_SECONDS = 0.05
PAUSE_SECONDS = 0.04
"""Between two events of one sensor, so that faults fall into the run of a fast gateway, too."""
OUTAGE_SECONDS_MAX = 10.0
QUIET_SECONDS, SETTLE_SECONDS_MAX = 10.0, 180.0
STEP_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run."""

    acknowledged: int
    transmissions: int
    lost: int
    """Acknowledged, and not at the far end."""
    duplicated: int
    """Arrivals beyond the first of each event."""


class SequentialSensors:
    """Sensors that send one event after the other, each until its response has arrived."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._lock = threading.Lock()
        self._over = threading.Event()
        self.acked: set[int] = set()
        self.transmissions = 0

    def run(self, sensor: int) -> None:
        """Send the events of one sensor."""
        random = Random(f"{SEED}:{sensor}")
        for number in range(sensor, EVENTS, SENSORS):
            again = 0
            while not self._sent(number, again, random) and not self._over.wait(RETRY_SECONDS):
                again += 1
            if self._over.wait(PAUSE_SECONDS):
                return

    def stop(self) -> None:
        """End the sensors, whatever is acknowledged."""
        self._over.set()

    def _sent(self, number: int, again: int, random: Random) -> bool:
        with self._lock:
            self.transmissions += 1
        try:
            acked = self._gateway.attempt(number, again, random.random() < RESPONSE_LOSS)
        except OSError:
            return False
        if acked:
            with self._lock:
                self.acked.add(number)
        return acked


def run(gateway: Gateway) -> Outcome:
    """Play the run, and compare what was acknowledged with what has arrived."""
    sensors = SequentialSensors(gateway)

    def reached(share: float, seconds: float = 120.0) -> None:
        deadline = time.monotonic() + seconds
        while len(sensors.acked) < share * EVENTS and time.monotonic() < deadline:
            time.sleep(STEP_SECONDS)

    def kill() -> None:
        gateway.kill()
        gateway.start()

    gateway.start()
    try:
        with ThreadPoolExecutor(SENSORS) as pool:
            waiting = [pool.submit(sensors.run, sensor) for sensor in range(SENSORS)]
            try:
                reached(0.15)
                kill()
                reached(0.3)
                gateway.uplink(up=False)
                reached(0.45, OUTAGE_SECONDS_MAX / 2)
                kill()
                reached(0.6, OUTAGE_SECONDS_MAX / 2)
                gateway.uplink(up=True)
                reached(0.8)
                kill()
                reached(1.0, SETTLE_SECONDS_MAX)
            finally:
                sensors.stop()
            for each in waiting:
                each.result()
        arrived = _settled(gateway)
    finally:
        gateway.kill()
        gateway.uplink(up=False)
    lost = len(sensors.acked - arrived.keys())
    doubled = sum(count - 1 for count in arrived.values())
    return Outcome(len(sensors.acked), sensors.transmissions, lost, doubled)


def _settled(gateway: Gateway) -> Counter[int]:
    """Return what has arrived once nothing more has for some time."""
    arrived, deadline = gateway.arrived(), time.monotonic() + SETTLE_SECONDS_MAX
    changed = time.monotonic()
    while time.monotonic() < deadline and time.monotonic() - changed < QUIET_SECONDS:
        time.sleep(1.0)
        now = gateway.arrived()
        if now != arrived:
            arrived, changed = now, time.monotonic()
    return arrived
