"""Any order of deliveries, failed commits, resends and restarts with lanes loses and doubles nothing."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.config.lanes import DEFAULT_LANE, Lane
from agent.config.settings import ForwardSettings, GatewaySettings, KafkaSettings, Settings
from agent.store.lanes.stores import LaneStores, lane_stores
from agent.store.port import Outcome
from contract.event import Event
from tests.agent.store.stores import GATEWAY, FaultyConnection, HandClock, accept, candidate, open_faulty, stored_events

LANES = (Lane("alarms", 10, type="alarm"), Lane("doors", -1, device="urn:door"))
KINDS = (("urn:a", "reading"), ("urn:a", "alarm"), ("urn:door", "reading"), ("urn:door", "alarm"))
LANE_OF = (DEFAULT_LANE, "alarms", "doors", "alarms")

EVENTS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 12)), min_size=1, max_size=6)
"""Each the index of a kind, and an id."""
STEP = st.one_of(
    st.tuples(st.just("deliver"), EVENTS),
    st.tuples(st.just("fail"), st.sampled_from([DEFAULT_LANE, "alarms", "doors"])),
    st.tuples(st.just("restart"), st.none()),
)


class _Gateway:
    """The stores of a gateway on one folder, whose commits fail in a lane where that is wanted."""

    def __init__(self, folder: Path, clock: HandClock) -> None:
        self._clock = clock
        self._settings = Settings(
            GatewaySettings(GATEWAY, folder), KafkaSettings("127.0.0.1:1"), forward=ForwardSettings(lanes=LANES)
        )
        self._faults = {lane: type("Faulty", (FaultyConnection,), {"fault": ""}) for lane in {*LANE_OF}}
        self.stores: LaneStores

    def open(self) -> LaneStores:
        self.stores = lane_stores(self._settings, self._clock)
        for lane, faulty in self._faults.items():
            self.stores.by_lane[lane]._connect = open_faulty(faulty)
        return self.stores

    def fail(self, lane: str, *, fails: bool) -> None:
        self._faults[lane].fault = "COMMIT" if fails else ""  # type: ignore[attr-defined]

    async def deliver(self, *events: Event) -> Outcome:
        return await accept(self.stores.intake, self._clock, *events)


def _event(kind: int, number: int) -> Event:
    device, type_ = KINDS[kind]
    return Event(device, type=type_, id=number, data={"x": number})


async def _run(steps: list[tuple[str, object]], folder: Path) -> None:
    clock = HandClock()
    gateway = _Gateway(folder, clock)
    acked: set[tuple[int, int]] = set()
    failing: str | None = None
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(gateway.open())
        for name, value in steps:
            clock.pass_seconds(1)
            if name == "restart":
                if failing is not None:
                    gateway.fail(failing, fails=False)
                    failing = None
                await stack.aclose()
                await stack.enter_async_context(gateway.open())
            elif name == "fail":
                assert isinstance(value, str)
                failing = value
            else:
                assert isinstance(value, list)
                if failing is not None:
                    gateway.fail(failing, fails=True)
                outcome = await gateway.deliver(*(_event(*one) for one in value))
                if outcome.refusal:
                    assert failing is not None
                else:
                    assert outcome.accepted + outcome.duplicates == len(value) == len(outcome.fingerprints)
                    acked.update(value)
                if failing is not None:
                    gateway.fail(failing, fails=False)
                    failing = None
        lanes = {
            lane: [event.fingerprint for event in stored_events(store)]
            for lane, store in gateway.stores.by_lane.items()
        }
        labels = Counter(event.label for store in gateway.stores.by_lane.values() for event in stored_events(store))
    assert max(Counter(name for names in lanes.values() for name in names).values(), default=1) == 1
    assert max(labels.values(), default=1) == 1
    for kind, number in acked:
        assert candidate(clock, _event(kind, number)).fingerprint in lanes[LANE_OF[kind]]


@pytest.mark.guarantee(1)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEP, min_size=1, max_size=25))
def test_nothing_acked_is_missing_and_nothing_is_stored_twice(steps: list[tuple[str, object]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_run(steps, Path(folder)))
