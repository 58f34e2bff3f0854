"""Sessions under a cap: refused events do not use it up, and the clients' reports of what they send are processed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.forward.delivery.held import read_held
from agent.store.facts import OVERSIZED
from tests.agent.forward.broker import KafkaTopic
from tests.agent.forward.delivery.test_oversized import LARGE
from tests.agent.forward.events import readings
from tests.agent.forward.running import forwarding
from tests.support.memory_outbox import MemoryOutbox
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

CAP = 40_000


@pytest.mark.parametrize("mode", ["at-least-once", "exactly-once"])
def test_a_refused_request_does_not_use_up_the_cap(kafka: KafkaTopic, gateway: str, mode: str) -> None:
    kafka.configure_topic("max.message.bytes", "3000")
    outbox = MemoryOutbox()
    outbox.append(*readings(15), LARGE, *readings(15, 15))
    with forwarding(replace(kafka.settings(mode), bytes_per_second_max=CAP), outbox, gateway):
        wait_until(lambda: outbox.new == 1, "all others are forwarded", seconds=60)

    assert list(read_held(outbox.fact(OVERSIZED))) == [16]
