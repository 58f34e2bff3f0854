"""The wall clock is set back while Kafka is unreachable or in use: forwarding continues at once."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.forward.errors import ClockSetBackError
from agent.forward.kafka.login_files import STEP_MS_MAX, WallSteps
from simulators.services.kafka.broker import Broker
from simulators.services.process import Command, Process
from tests.agent.forward.broker import KafkaTopic
from tests.agent.store.stores import HandClock
from tests.support.agent_process import configured
from tests.support.steppable_clock import SteppableClock
from tests.support.waiting import wait_until

HOURS = 3_600


def test_only_a_clock_that_was_set_back_by_more_than_a_moment_is_noticed_and_once(clock: HandClock) -> None:
    steps = WallSteps(clock)
    for step_ms in (STEP_MS_MAX, -STEP_MS_MAX, 10**9, -STEP_MS_MAX, -STEP_MS_MAX):
        clock.pass_seconds(60)
        clock.now += step_ms
        steps.check()
    clock.now -= STEP_MS_MAX + 1
    with pytest.raises(ClockSetBackError, match="set back by 1 s"):
        steps.check()
    steps.check()


class Gateway:
    """An agent with a wall clock that the test sets."""

    def __init__(self, folder: Path, kafka: KafkaTopic, delivery: str) -> None:
        self.clock = SteppableClock(folder)
        options = f'topic = "{kafka.topic}"\ndelivery = "{delivery}"\n[receipts]\npoll_seconds = 0.3\n'
        file = configured(folder, options, gateway="gw-1", coap="", kafka=kafka.bootstrap_servers)
        command = (sys.executable, "-m", "agent.cli.main", "run", "--config", str(file))
        self.process = Process(Command("agent", command, folder / "agent.log", environment=self.clock.environment))
        self._sent = 0

    def _url(self, path: str) -> str:
        place = self.process.log().split("agent=ready", 1)[1].split("http=", 1)[1].split()[0]
        return f"http://{place}/api/v1/{path}"

    def send(self, count: int) -> None:
        for _ in range(count):
            self._sent += 1
            body = json.dumps({"device": "d", "id": self._sent, "data": {"n": self._sent}}).encode()
            request = urllib.request.Request(self._url("events"), body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=30) as answer:
                assert answer.status == 200

    def has_forwarded_all(self) -> bool:
        """Whether Kafka has all sent events; a status shared with an earlier reader does not count all as accepted."""
        with urllib.request.urlopen(self._url("status"), timeout=30) as answer:
            status = json.load(answer)
        return bool(status["accepted"] == self._sent and status["events"]["new"] == 0)


@contextmanager
def running(gateway: Gateway) -> Iterator[None]:
    with gateway.process:
        gateway.process.wait_for_log("agent=ready")
        yield


@pytest.mark.guarantee(4)
@pytest.mark.kafka
@pytest.mark.heavy
@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_clock_that_is_set_back_while_kafka_is_away_delays_nothing(
    broker: Broker, kafka: KafkaTopic, tmp_path: Path, delivery: str
) -> None:
    gateway = Gateway(tmp_path, kafka, delivery)
    with running(gateway):
        gateway.send(5)
        wait_until(gateway.has_forwarded_all, "the first are forwarded")
        for hours in (2, 5):
            broker.kill()
            gateway.send(20)
            wait_until(lambda: "kafka=unreachable" in gateway.process.log(), "it notices that Kafka is away")
            gateway.clock.set(-hours * HOURS)
            gateway.send(5)
            broker.start()
            wait_until(gateway.has_forwarded_all, "everything is forwarded", seconds=300)
