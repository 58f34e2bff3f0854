"""A link on which a client needs more than ten seconds for its connections, as with TLS on a cellular one."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.forward.kafka.health import UNREACHABLE
from agent.forward.receipts.round import SharedRound
from agent.telemetry.links import LinkName
from simulators.services import ports
from simulators.services.kafka.broker import Broker, Listener
from tests.agent.forward.broker import KafkaTopic
from tests.agent.forward.events import readings
from tests.agent.forward.links import LateLink
from tests.agent.forward.receipts.polling import processed
from tests.agent.forward.running import forwarding, receipting
from tests.support.memory_outbox import MemoryOutbox
from tests.support.waiting import wait_for_count

pytestmark = [pytest.mark.kafka, pytest.mark.heavy]
ROUND_TRIP_SECONDS = 2.3
"""A connection, metadata, the coordinator, a connection to it, and the group's offsets take five of them."""


@pytest.mark.guarantee(4)
def test_events_are_receipted_over_a_link_on_which_connections_take_long(tmp_path: Path, outbox: MemoryOutbox) -> None:
    listens, says = ports.free(2)
    listener = Listener("PLAINTEXT", listens, says)
    with Broker(tmp_path / "kafka", listener) as broker, LateLink(says, listens, ROUND_TRIP_SECONDS):
        near = KafkaTopic(broker.bootstrap_servers, "slow")
        near.create_topic()
        far = KafkaTopic(f"127.0.0.1:{says}", "slow").settings()
        outbox.append(*readings(10))
        shared = SharedRound(0.1)
        with forwarding(far, outbox, shared=shared), receipting(far, outbox, shared=shared) as links:
            wait_for_count(lambda: len(near.records()), 10, "all are in the topic")
            near.commit(None, near.receipt())
            wait_for_count(lambda: processed(outbox), 10, "all are processed")
            assert links.state(LinkName.RECEIPTS) != UNREACHABLE
