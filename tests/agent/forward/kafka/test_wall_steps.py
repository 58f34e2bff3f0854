"""The wall clock is set back while Kafka is unreachable or in use: forwarding continues at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.forward.errors import ClockSetBackError
from agent.forward.kafka.login_files import STEP_MS_MAX, WallSteps
from agent.status import read_status
from simulators.services.kafka.broker import Broker
from tests.agent.forward.broker import KafkaTopic
from tests.agent.forward.running import GATEWAY
from tests.agent.store.stores import HandClock
from tests.support.agent_process import agent_process, configured, post_events
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


@pytest.mark.guarantee(4)
@pytest.mark.kafka
@pytest.mark.heavy
@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_clock_that_is_set_back_while_kafka_is_away_delays_nothing(
    broker: Broker, kafka: KafkaTopic, tmp_path: Path, delivery: str
) -> None:
    clock = SteppableClock(tmp_path)
    options = f'topic = "{kafka.topic}"\ndelivery = "{delivery}"\n[receipts]\npoll_seconds = 0.3\n'
    configuration = configured(tmp_path, options, gateway=GATEWAY, coap="", kafka=kafka.bootstrap_servers)

    def is_forwarded() -> bool:
        return read_status(tmp_path / "state", GATEWAY).events.new == 0

    with agent_process(configuration, clock.environment) as agent:
        agent.start()
        post_events(agent, range(5))
        wait_until(is_forwarded, "the first are forwarded")
        for hours in (2, 5):
            broker.kill()
            post_events(agent, range(100 * hours, 100 * hours + 20))
            wait_until(lambda: "kafka=unreachable" in agent.log(), "it notices that Kafka is away")
            clock.set(-hours * HOURS)
            post_events(agent, range(1_000 * hours, 1_000 * hours + 5))
            broker.start()
            wait_until(is_forwarded, "everything is forwarded", seconds=300)
