"""Clocks end to end: a real agent whose wall clock is in 1970, steps back and steps ahead."""

import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.store.layout import FILE_NAME
from agent.store.read.events import Epochs, labelled, read_packed
from agent.store.schema import database
from contract.event import Label
from simulators import wire
from tests.support.agent_process import agent_process, configured, wait_until_ready
from tests.support.steppable_clock import SteppableClock
from tests.support.udp import ask
from tests.support.waiting import wait_until

BOOT_1970 = 60 - int(time.time())
RIGHT, BACK, AHEAD = 0, -14 * 86_400, 365 * 86_400
"""The offsets of wall clocks, in seconds."""


class Gateway:
    """One gateway, restarted several times with another wall clock; its monotonic clocks are correct."""

    def __init__(self, folder: Path, retention: str) -> None:
        self.folder = folder
        self.clock = SteppableClock(folder)
        self._configuration = configured(folder, f'[identity]\nretention = "{retention}"\n', http="")
        self._port = 0
        self._number = 0

    @contextmanager
    def running(self, wall: int) -> Iterator[None]:
        """Run the agent with a wall clock, until a stop is requested."""
        self.clock.set(wall)
        with agent_process(self._configuration, self.clock.environment) as process:
            process.start()
            self._port = wait_until_ready(process)["coap"]
            yield
            assert process.terminate() == 0

    def send(self, event: int) -> None:
        """Send an event with its own Message ID and Token, until it is acked."""
        body = b'{"device":"urn:dev:mac:0000000000000001","id":%d,"data":{"n":%d}}' % (event, event)
        self._number += 1
        assert ask("::1", self._port, wire.Request(body, 50), self._number) == "2.04"

    def stored(self) -> list[tuple[int, int, str]]:
        """Return the id, the year of acceptance, and the clock's trust of each stored event of a sensor."""
        return [
            (body["id"], time.gmtime(body["received"] / 1000).tm_year, clock)
            for body, _, clock in self.read()
            if body["via"] == "coap"
        ]

    def read(self) -> list[tuple[dict[str, Any], Label, str]]:
        """Return all stored events: the value's entries, the label, and the clock's trust."""
        with closing(database.open_for_reading(self.folder / "state" / FILE_NAME)) as connection:
            epochs = Epochs.load(connection)
            events = labelled(list(read_packed(connection, 1, 1 << 40)), epochs)
        return [(json.loads(b"{" + event.tail + b"}"), event.label, event.clock.value) for event in events]


@pytest.mark.guarantee(2)
@pytest.mark.parametrize("walls", [(BOOT_1970, RIGHT, BACK, AHEAD), (AHEAD, BACK, BOOT_1970, RIGHT)])
def test_no_step_of_the_wall_clock_makes_the_gateway_forget(tmp_path: Path, walls: tuple[int, ...]) -> None:
    gateway = Gateway(tmp_path, "7d")
    for number, wall in enumerate(walls):
        with gateway.running(wall):
            for event in range(number + 1):
                gateway.send(event)
            gateway.clock.set(walls[(number + 1) % len(walls)])
            for event in range(number + 1):
                gateway.send(event)
    stored = gateway.stored()
    assert [event for event, _, _ in stored] == list(range(len(walls)))
    now = time.gmtime().tm_year
    in_1970 = walls.index(BOOT_1970)
    assert stored[in_1970][1] == 1970
    assert stored[walls.index(AHEAD)][1] in (now + 1, now + 2)
    assert {clock for _, _, clock in stored} <= {"trusted", "untrusted"}


@pytest.mark.guarantee(2)
def test_the_retention_runs_on_time_that_has_passed_whatever_the_wall_says(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path, "3s")
    with gateway.running(AHEAD):
        gateway.send(1)
        since = time.monotonic()
        gateway.clock.set(BOOT_1970)
        wait_until(lambda: time.monotonic() - since > 4, "four seconds of running")
        gateway.send(2)
    with gateway.running(BACK):  # the opening checks for expired fingerprints, before the first commit
        gateway.send(2)
        gateway.send(1)
        gateway.send(1)
    assert [event for event, _, _ in gateway.stored()] == [1, 2, 1]


@pytest.mark.heavy
@pytest.mark.guarantee(5)
def test_once_the_kernel_reports_a_synchronised_clock_an_event_declares_by_how_much_it_was_off(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path, "7d")
    clock = gateway.clock
    clock.report(synchronised=False)
    sent: dict[int, tuple[float, float]] = {}

    def send(event: int) -> None:
        before = time.time()
        gateway.send(event)
        sent[event] = (before, time.time())

    with gateway.running(BACK):
        send(1)
    with gateway.running(BACK):  # in the same boot of the machine
        send(2)
        clock.set(-86_400)
        send(3)
        clock.set(0)
        clock.report(synchronised=True)
        wait_until(lambda: any(body["type"] == "gateway.clock" for body, _, _ in gateway.read()), "the correction")
        send(4)
    found = gateway.read()
    corrections = [body["data"] for body, _, _ in found if body["type"] == "gateway.clock"]
    assert [round(one["correction_ms"] / 86_400_000) for one in corrections] == [14, 14, 1]
    for body, label, trust in found:
        if body["via"] == "coap":
            found_for = [
                one["correction_ms"]
                for one in corrections
                if one["epoch"] == label.epoch and one["first"] <= label.sequence <= one["last"]
            ]
            assert (trust, len(found_for)) == (("trusted", 0) if body["id"] == 4 else ("untrusted", 1))
            before, after = sent[body["id"]]
            assert before - 0.5 <= (body["received"] + sum(found_for)) / 1000 <= after + 0.5
