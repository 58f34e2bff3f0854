"""A backlog of up to a million events is sent in bounded memory, also after a kill in the middle."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from agent.config.settings import IdentitySettings, StoreSettings
from agent.status import read_status
from agent.store.event_store import EventStore
from agent.store.layout import FILE_NAME
from contract.event import Event
from simulators.services.process import Process
from tests.agent.forward.broker import KafkaTopic, label
from tests.agent.forward.modes.test_kills import stored_labels
from tests.agent.store.stores import HandClock, accept
from tests.support.agent_process import agent_process, configured
from tests.support.waiting import wait_for_count, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.heavy]

EVENTS_A_COMMIT = 1_000
RSS_BYTES_MAX = 128 << 20
"""Half of the unit's limit (MemoryMax)."""


def rss_bytes_max(agent: Process) -> int:
    """Return the peak memory of a process since its start."""
    found = re.search(r"VmHWM:\s+([0-9]+) kB", Path(f"/proc/{agent.pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


@pytest.mark.guarantee(4)
@pytest.mark.parametrize(("mode", "count"), [("at-least-once", 1_000_000), ("exactly-once", 200_000)])
async def test_a_long_backlog_leaves_in_bounded_memory_and_survives_a_kill_in_the_middle(
    kafka: KafkaTopic, gateway: str, tmp_path: Path, mode: str, count: int, clock: HandClock
) -> None:
    state = tmp_path / "state"
    options = f'topic = "{kafka.topic}"\ndelivery = "{mode}"\n[receipts]\npoll_seconds = 1\n'
    configuration = configured(tmp_path, options, gateway=gateway, coap="", http="", kafka=kafka.bootstrap_servers)
    async with EventStore(state, gateway, StoreSettings(), IdentitySettings(), clock) as store:
        for first in range(0, count, EVENTS_A_COMMIT):
            numbers = range(first, first + EVENTS_A_COMMIT)
            await accept(store, *[Event(f"d{number % 50}", id=number, data={"t": 20.5}) for number in numbers])
    labels = stored_labels(state / FILE_NAME)

    with agent_process(configuration) as agent:
        agent.start()
        wait_until(lambda: read_status(state, gateway).events.new < count // 2, "half of it has left", 600)
        used = rss_bytes_max(agent)
        agent.kill()
        agent.start()
        wait_for_count(lambda: read_status(state, gateway).events.new, 0, "all of it has left")
        kafka.commit(None, kafka.receipt())
        wait_for_count(lambda: read_status(state, gateway).events.forwarded, 0, "all of it has its receipt")
        used = max(used, rss_bytes_max(agent))
    seen = Counter(label(one) for one in kafka.records())

    print(f"used={used >> 20} MiB, records={seen.total()}")
    assert used < RSS_BYTES_MAX
    assert set(seen) == labels
    if mode == "exactly-once":
        assert seen.total() == len(labels)
