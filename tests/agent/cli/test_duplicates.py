"""Duplicates that a running agent has counted and not written yet are in what commands and views show."""

import json
import socket
from contextlib import closing
from typing import Any

import pytest

from agent.cli.api import Api
from contract.event import Event
from contract.fingerprint import fingerprint
from tests.agent.cli.running import RunningAgent

DEVICE = "urn:duplicates"


def post(agent: RunningAgent, number: int) -> None:
    body = json.dumps({"device": DEVICE, "id": number, "data": {"value": 1}}).encode()
    assert Api(f"http://127.0.0.1:{agent.http_port}").post("/api/v1/events", body, "application/json").code == 200


def shown(agent: RunningAgent, *words: str) -> list[dict[str, Any]]:
    done = agent.oncegate(*words, "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def duplicates(agent: RunningAgent) -> int:
    (status,) = shown(agent, "status")
    return int(status["duplicates"])


@pytest.mark.guarantee(2)
def test_commands_show_duplicates_the_moment_they_are_acked(running_agent: RunningAgent) -> None:
    found = fingerprint(Event(DEVICE, id=1, data={"value": 1})).hex()
    post(running_agent, 1)
    before = duplicates(running_agent)
    for copies in (1, 2):
        post(running_agent, 1)
        listed = shown(running_agent, "events", "--duplicates", "--limit", "1000")
        assert sum(one["fingerprint"] == found for one in listed) == copies
        assert duplicates(running_agent) == before + copies
    post(running_agent, 1)
    (trace,) = shown(running_agent, "trace", found)
    assert len(trace["duplicates"]) == 3


@pytest.mark.guarantee(2)
def test_the_status_counts_what_coap_answers_from_its_memory(running_agent: RunningAgent) -> None:
    post(running_agent, 2)
    before = duplicates(running_agent)
    body = json.dumps({"device": DEVICE, "id": 3, "data": {"value": 1}}).encode()
    datagram = b"\x40\x02\x12\x34" + b"\xb6events" + b"\x11\x32" + b"\xff" + body
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as sensor:
        sensor.settimeout(10)
        sensor.connect(("127.0.0.1", running_agent.coap_port))
        for _ in range(3):
            sensor.send(datagram)
            assert sensor.recv(100)[1] == 0x44  # 2.04 Changed
    assert duplicates(running_agent) == before + 2


def test_the_views_show_duplicates_too(running_agent: RunningAgent) -> None:
    api = Api(f"http://127.0.0.1:{running_agent.http_port}")
    for _ in range(3):
        post(running_agent, 4)
    found = fingerprint(Event(DEVICE, id=4, data={"value": 1})).hex()
    (trace,) = api.get(f"/api/v1/trace?fingerprint={found}").document
    assert len(trace["duplicates"]) == 2
