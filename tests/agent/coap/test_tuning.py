"""The defaults as served: those of RFC 7252 section 4.8, and those that the pages state."""

from __future__ import annotations

import pytest

from agent.coap.server import CoapServer
from agent.coap.tuning import Tuning
from agent.config.settings import CoapSettings
from agent.store.fingerprints.transient import EXCHANGE_LIFETIME_MS
from tests.agent.coap.recorder import Recorder
from tests.agent.coap.sensor import CHANGED, Sensor, post
from tests.agent.coap.stepped_loop import SteppedLoop

MAX_LATENCY_SECONDS = 100
"""Not a setting: the RFC's maximum time of a datagram in the network."""


def test_the_defaults_are_the_rfcs() -> None:
    tuning = Tuning()
    assert (tuning.ack_timeout_seconds, tuning.ack_random_factor, tuning.retransmits_max) == (2, 1.5, 4)
    span = tuning.ack_timeout_seconds * (2**tuning.retransmits_max - 1) * tuning.ack_random_factor
    processing = tuning.ack_timeout_seconds
    assert tuning.exchange_lifetime_seconds == span + 2 * MAX_LATENCY_SECONDS + processing == 247


@pytest.mark.guarantee(2)
def test_coap_and_store_take_the_same_datagram_for_a_retransmission_for_as_long() -> None:
    assert Tuning().exchange_lifetime_seconds * 1_000 == EXCHANGE_LIFETIME_MS == 247_000


@pytest.mark.guarantee(2)
async def test_by_default_a_retransmission_is_answered_from_memory_for_247_seconds_and_no_longer() -> None:
    recorder = Recorder()
    with SteppedLoop() as clock:
        async with CoapServer(CoapSettings(bind="[::1]:0"), recorder) as server, Sensor(server.port) as sensor:
            for seconds, deliveries in ((0, 1), (240, 1), (6, 1), (1.5, 2)):
                await clock.advance(seconds)
                assert (await sensor.ask(post(mid=5))).code == CHANGED
                assert len(recorder.deliveries) == deliveries
