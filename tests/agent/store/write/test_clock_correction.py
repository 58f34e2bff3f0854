"""What was accepted under an untrusted clock is corrected once the clock is trusted: gateway.clock events."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.status import read_status
from agent.store.event_store import EventStore
from agent.store.gateway_events import CLOCK_RANGES_MAX, CLOCK_STEP_MS, UntrustedClock, read_untrusted_clock
from agent.store.write.maintenance import CLOCK_MS
from contract.event import Event
from contract.record import ClockTrust
from tests.agent.store.stores import (
    GATEWAY,
    START,
    Faulty,
    HandClock,
    accept,
    document,
    make_store,
    stored_events,
    submit,
)

DEVICE = "urn:dev:mac:0000000000000001"
IN_1970 = 60_000


def untrusted(boot: str = "boot-1") -> HandClock:
    return HandClock(now=IN_1970, boot_name=boot, trusted=ClockTrust.UNTRUSTED)


def synchronise(clock: HandClock, now: int) -> None:
    clock.now, clock.trusted = now, ClockTrust.TRUSTED


def reading(number: int) -> Event:
    return Event(DEVICE, "reading", number, data={"n": number})


@dataclass(slots=True)
class Stored:
    """What a store holds: the corrections, and events of the sensor by their labels."""

    clocks: list[dict[str, Any]] = field(default_factory=list)
    readings: list[tuple[str, int, dict[str, Any], ClockTrust]] = field(default_factory=list)

    @classmethod
    def of(cls, store: EventStore) -> Stored:
        found = cls()
        for event in stored_events(store):
            entries = document(event)
            if entries["type"] == "gateway.clock":
                assert event.clock is ClockTrust.TRUSTED
                found.clocks.append({"boot": entries["boot"], **entries["data"]})
            elif entries["type"] == "reading":
                found.readings.append((event.label.epoch, event.label.sequence, entries, event.clock))
        return found

    def corrections(self, epoch: str, sequence: int) -> list[int]:
        return [
            one["correction_ms"]
            for one in self.clocks
            if one["epoch"] == epoch and one["first"] <= sequence <= one["last"]
        ]


async def test_no_event_of_a_sensor_is_needed_for_it_and_what_the_disk_refuses_is_declared_later(
    tmp_path: Path, faulty: Faulty
) -> None:
    clock = untrusted()
    async with make_store(tmp_path, clock, connect=faulty.connect) as store:
        await accept(store, reading(1))
        synchronise(clock, START)
        faulty.fault = "INSERT INTO events"
        async with asyncio.timeout(60):
            while not Stored.of(store).clocks:
                clock.pass_seconds(CLOCK_MS / 1000)
                await store.barrier()
                faulty.fault = faulty.fault if not faulty.hits else ""
        clock.pass_seconds(CLOCK_MS / 1000)
        await accept(store, reading(1))
        await store.barrier()
        found = Stored.of(store)
        epoch, sequence, *_ = found.readings[0]
        assert faulty.hits
        assert found.corrections(epoch, sequence) == [START - IN_1970]
        assert len(found.clocks) == 1, "once"
        assert read_status(tmp_path, GATEWAY).accepted == 1


async def test_an_event_that_waits_for_its_commit_while_the_clock_is_set_is_corrected(tmp_path: Path) -> None:
    clock = untrusted()
    async with make_store(tmp_path, clock) as store:
        waiting = submit(store, reading(1))
        synchronise(clock, START)  # before or after the writer's turn
        await asyncio.wait_for(waiting, 60)
        await accept(store, reading(2))
        found = Stored.of(store)
        epoch, sequence, *_ = found.readings[0]
        assert found.corrections(epoch, sequence) == [START - IN_1970]


@pytest.mark.guarantee(5)
async def test_what_an_earlier_boot_accepted_is_not_corrected_and_said_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = untrusted()
    async with make_store(tmp_path, clock) as store:
        await accept(store, reading(1))
    clock = untrusted(boot="boot-2")
    async with make_store(tmp_path, clock) as store:
        assert "clock=uncorrected from_position=1" in caplog.text
        synchronise(clock, START)
        await accept(store, reading(2))
        assert not Stored.of(store).clocks


def test_after_too_many_steps_the_rest_is_not_corrected() -> None:
    clock = UntrustedClock()
    for step in range(CLOCK_RANGES_MAX + 5):
        clock = clock.noted("b", step + 1, step * (CLOCK_STEP_MS + 1))
    clock = read_untrusted_clock(clock.text())
    corrected = [(first, last) for first, last, _ in clock.ranges("b", 1_000)]
    assert corrected == [(step, step) for step in range(1, CLOCK_RANGES_MAX + 1)]


ACTIONS = st.one_of(
    st.just(("event",)),
    st.tuples(st.just("pass_ms"), st.integers(0, 100_000)),
    st.tuples(st.just("step"), st.integers(-(10**9), 10**9)),
    st.just(("synchronise",)),
    st.just(("lose_trust",)),
    st.just(("restart",)),
    st.just(("reboot",)),
)


@pytest.mark.guarantee(5)
@settings(max_examples=20)
@given(actions=st.lists(ACTIONS, max_size=30))
async def test_each_untrusted_event_of_a_boot_that_ends_trusted_has_one_correction_to_the_right_time(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[Any, ...]]
) -> None:
    folder = tmp_path_factory.mktemp("store")
    machine = Machine(folder)
    await machine.open()
    for name, *values in [*actions, ("event",)]:
        await getattr(machine, name)(*values)
    found = Stored.of(machine.store)
    await machine.close()
    assert [entries["id"] for *_, entries, _ in found.readings] == list(range(len(machine.accepted)))
    for epoch, sequence, entries, trust in found.readings:
        boot, right = machine.accepted[entries["id"]]
        corrections = found.corrections(epoch, sequence)
        if trust is ClockTrust.TRUSTED:
            assert entries["received"] == right
        else:
            assert len(corrections) <= 1
            assert len(corrections) == 1 or boot not in machine.ended_trusted
            assert all(abs(entries["received"] + one - right) <= CLOCK_STEP_MS for one in corrections)
    assert {one["boot"] for one in found.clocks} <= {f"boot-{boot}" for boot in range(machine.boot + 1)}
    assert read_status(folder, GATEWAY).accepted == len(machine.accepted)


class Machine:
    """A gateway that has only its clock, while the test knows the right time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._clock = untrusted(boot="boot-0")
        self._right = START
        self.boot = 0
        self.accepted: list[tuple[int, int]] = []
        """Boot and right time of each event, whose id is its place."""
        self.ended_trusted: set[int] = set()
        """Boots whose latest event was accepted under a trusted clock."""

    async def open(self) -> None:
        self.store = make_store(self._folder, self._clock)
        await self.store.__aenter__()

    async def close(self) -> None:
        await self.store.__aexit__(None, None, None)

    async def event(self) -> None:
        await accept(self.store, reading(len(self.accepted)))
        self.accepted.append((self.boot, self._right))
        if self._clock.trusted is ClockTrust.TRUSTED:
            self.ended_trusted.add(self.boot)
        else:
            self.ended_trusted.discard(self.boot)

    async def pass_ms(self, ms: int) -> None:
        self._clock.now += ms
        self._clock.running += ms
        self._right += ms

    async def step(self, ms: int) -> None:
        if self._clock.trusted is ClockTrust.UNTRUSTED:
            self._clock.now = max(0, self._clock.now + ms)

    async def synchronise(self) -> None:
        synchronise(self._clock, self._right)

    async def lose_trust(self) -> None:
        self._clock.trusted = ClockTrust.UNTRUSTED

    async def restart(self) -> None:
        await self.close()
        await self.open()

    async def reboot(self) -> None:
        await self.close()
        self.boot += 1
        self._clock.boot_name, self._clock.running = f"boot-{self.boot}", 5_000
        self._clock.trusted = ClockTrust.UNTRUSTED
        await self.open()
