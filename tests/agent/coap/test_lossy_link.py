"""Blocks of 64 bytes over IPv6 through a link that loses every fifth datagram, like a poor 6LoWPAN link."""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio  # noqa: F401  # the mode is auto
from aiocoap import Context, Message  # type: ignore[import-untyped] # aiocoap carries no types
from aiocoap.numbers.codes import Code  # type: ignore[import-untyped]
from aiocoap.numbers.constants import TransportTuning  # type: ignore[import-untyped]

from agent.coap.tuning import Tuning
from simulators.link.faults import link_profile
from simulators.link.udp import Link
from simulators.scenario import LinkPlan
from tests.agent.coap.recorder import Recorder
from tests.agent.coap.serving import serving

SEED = 6282
SENSORS = 4
BLOCK_64 = 2
"""The size exponent of 64 bytes (RFC 7959 section 2.2)."""


class Impatient(TransportTuning):  # type: ignore[misc] # aiocoap carries no types
    """Retransmits soon and often, to keep the test short."""

    ACK_TIMEOUT = 0.05
    MAX_RETRANSMIT = 9


async def _upload(port: int, body: bytes) -> Code:
    client = await Context.create_client_context(transports=["udp6"])
    try:
        message = Message(code=Code.POST, uri=f"coap://[::1]:{port}/e", payload=body, content_format=60)
        message.transport_tuning = Impatient()
        message.remote.maximum_block_size_exp = BLOCK_64
        return (await client.request(message, handle_blockwise=True).response).code
    finally:
        await client.shutdown()


@pytest.mark.guarantee(1)
async def test_uploads_in_small_blocks_arrive_whole_over_a_lossy_link() -> None:
    recorder = Recorder()
    bodies = [bytes((65 + number,)) * (900 + 37 * number) for number in range(SENSORS)]
    profile = link_profile(LinkPlan(request_loss=0.2, answer_loss=0.2, jitter_seconds=0.01))
    async with (
        serving(recorder, Tuning(slow_per_second=1e9)) as server,
        Link([("::1", server.port)], profile, SEED, ("::1", 0)) as link,
    ):
        codes = await asyncio.gather(*(_upload(link.address[1], body) for body in bodies))
        assert link.traffic.requests_lost > SENSORS, f"seed {SEED}"
        assert server.counters.slow >= sum(len(body) // 64 for body in bodies)
    assert codes == [Code.CHANGED] * SENSORS
    assert {delivery.body for delivery in recorder.deliveries} == set(bodies)
