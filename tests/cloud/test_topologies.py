"""Two agents behind a balancer, one of which reaches Kafka through another machine; one dies: docs/topologies.md."""

import json
import re
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from simulators.services import ports
from simulators.services.kafka.broker import Broker, Listener
from simulators.services.postgres import Postgres
from simulators.services.process import Process
from tests.agent.forward.kafka.test_services import VersionLink
from tests.cloud.plain_consumer.consuming import ConsumerSide
from tests.support.agent_process import agent_process, ask, configured, wait_until_ready
from tests.support.waiting import wait_for_count, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.heavy, pytest.mark.guarantee(0)]


def test_an_agent_behind_a_balancer_that_dies_has_what_it_accepted_when_it_starts_on_its_volume(
    tmp_path: Path, postgres: Postgres
) -> None:
    port, forwarded = ports.free(2)
    with ExitStack() as opened:
        broker = opened.enter_context(Broker(tmp_path / "broker", Listener("PLAINTEXT", port, forwarded)))
        opened.enter_context(VersionLink(forwarded, port, {}))
        side = ConsumerSide(broker, postgres, tmp_path, f"t{uuid4().hex}")
        agents = []
        for name, kafka in (("a", broker.bootstrap_servers), ("b", f"127.0.0.1:{forwarded}")):
            (tmp_path / name).mkdir()
            more = f'topic = "{side.name}"\n[receipts]\ngroup = "{side.name}"\npoll_seconds = 1\n'
            file = configured(tmp_path / name, more, gateway=name, coap="", kafka=kafka)
            agents.append(opened.enter_context(agent_process(file)))
            agents[-1].start()
        a, b = agents
        for number in range(40):
            assert push(agents[number % 2], number)
            if number % 8 == 0:  # an answer that was lost
                assert push(agents[1 - number % 2], number)
        opened.callback(side.start().kill)
        side.wait_for_rows(40)
        broker.pause()
        for number in range(40, 80):
            assert push(agents[number % 2], number)
        a.kill()
        for number in range(80, 100):
            assert push(a, number) or push(b, number)
        broker.resume()
        wait_until(lambda: set(range(100)) - set(side.ids()) <= set(range(40, 80, 2)), "all but what the dead one has")
        assert len(side.ids()) < 100
        a.start()
        side.wait_for_rows(100)
        assert side.ids() == list(range(100))
        for agent in agents:
            wait_for_count(partial(unconfirmed, agent), 0, "events without a receipt")


def push(agent: Process, number: int) -> bool:
    """Post as ChirpStack does; return whether it was accepted."""
    message = {
        "deduplicationId": str(number),
        "time": f"2026-11-27T10:{number // 60:02}:{number % 60:02}Z",
        "deviceInfo": {"devEui": "0000000000000001"},
        "fPort": 1,
        "object": {"temperature": 20 + number},
    }
    with suppress(OSError):
        _, answer = ask(port_of(agent), "POST", "/api/v1/events?mapping=chirpstack-v4", json.dumps(message))
        return int(json.loads(answer)["rejected"]) == 0
    return False


def unconfirmed(agent: Process) -> int:
    """Return how many events no receipt has confirmed."""
    _, metrics = ask(port_of(agent), "GET", "/metrics")
    found = re.findall(r'^oncegate_outbox_events{state="(?:new|forwarded)"} (.*)$', metrics.decode(), re.MULTILINE)
    return int(sum(map(float, found)))


def port_of(agent: Process) -> int:
    return wait_until_ready(agent)["http"] if agent.alive else ports.free(1)[0]
