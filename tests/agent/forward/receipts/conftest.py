"""The outbox whose receipts are polled."""

from __future__ import annotations

import pytest

from tests.agent.forward.broker import KafkaTopic
from tests.agent.forward.checks import wait_until_forwarded
from tests.agent.forward.events import readings
from tests.agent.forward.receipts.polling import EVENTS, CountingOutbox
from tests.agent.forward.running import forwarding


@pytest.fixture
def outbox(kafka: KafkaTopic) -> CountingOutbox:
    """Return an outbox whose events are in the topic."""
    outbox = CountingOutbox()
    outbox.append(*readings(EVENTS))
    with forwarding(kafka.settings(), outbox):
        wait_until_forwarded(outbox)
    return outbox
