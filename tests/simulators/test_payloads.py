from __future__ import annotations

from random import Random

import pytest

from agent.decode import decode
from agent.delivery import Delivery, Media
from contract.event import Event
from simulators.oracle.statement import canonical
from simulators.payloads import KnownBy, PayloadGenerator, device_profile, identified_by

NOW = 1_763_706_000_123
SENSORS = 12


@pytest.mark.parametrize("index", range(SENSORS))
def test_what_a_generator_encodes_is_what_is_understood(index: int) -> None:
    generator = PayloadGenerator(device_profile(index), Random(index))
    for _ in range(50):
        event = generator.next_event(NOW)
        request = generator.request(event)
        query = dict(word.split("=", 1) for word in request.query)
        delivery = Delivery(request.payload, Media(request.content_format), "coap", "coap://[::1]", query=query)
        (understood,) = decode(delivery).events
        assert _said(understood) == _said(event)
        assert identified_by(event) is generator.profile.known_by


def test_no_two_events_share_an_id_or_a_time() -> None:
    for index in range(SENSORS):
        generator = PayloadGenerator(device_profile(index), Random(index))
        events = [generator.next_event(NOW) for _ in range(100)]
        if generator.profile.known_by is not KnownBy.NEITHER:
            assert len({(event.id, event.time) for event in events}) == 100


def _said(event: Event) -> tuple[object, ...]:
    return event.device, event.type, event.id, event.time, canonical(event.data)
