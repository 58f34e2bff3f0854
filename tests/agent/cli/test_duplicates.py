"""Duplicates that a running agent has counted and not written yet are in what commands and views show."""

import json
import socket
from contextlib import closing

import pytest

from contract.event import Event
from contract.fingerprint import fingerprint
from tests.agent.cli.running import RunningAgent

DEVICE = "urn:duplicates"


def duplicates(agent: RunningAgent) -> int:
    (status,) = agent.shown("status")
    return int(status["duplicates"])


@pytest.mark.guarantee(2)
def test_commands_show_duplicates_the_moment_they_are_acked(running_agent: RunningAgent) -> None:
    found = fingerprint(Event(DEVICE, id=1, data={"value": 1})).hex()
    running_agent.post(DEVICE, 1)
    before = duplicates(running_agent)
    for copies in (1, 2):
        running_agent.post(DEVICE, 1)
        listed = running_agent.shown("events", "--duplicates", "--limit", "1000")
        assert sum(one["fingerprint"] == found for one in listed) == copies
        assert duplicates(running_agent) == before + copies
    running_agent.post(DEVICE, 1)
    (trace,) = running_agent.shown("trace", found)
    assert len(trace["duplicates"]) == 3


@pytest.mark.guarantee(2)
def test_the_status_counts_what_coap_answers_from_its_memory(running_agent: RunningAgent) -> None:
    running_agent.post(DEVICE, 2)
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
