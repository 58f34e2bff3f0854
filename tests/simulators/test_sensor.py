from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from contract.event import Event
from simulators.fleet import Fleet, FleetPlan
from simulators.ledger import Ledger, Sent, Told, read
from simulators.link import Link, weather
from simulators.sensor import Sensor, Timing
from simulators.voice import Form, Kind, Nature, Voice
from tests.simulators.tiny_gateway import (
    BAD_REQUEST,
    UNAVAILABLE,
    Answer,
    TinyGateway,
    acked,
    separate,
    tiny_gateway,
)

QUICK = Timing().faster(200)


@asynccontextmanager
async def field(
    tmp_path: Path, kind: Kind, answer: Answer, timing: Timing = QUICK
) -> AsyncIterator[tuple[Sensor, TinyGateway, Ledger]]:
    with Ledger(tmp_path / "ledger.jsonl", lambda: 0) as ledger:
        async with tiny_gateway(answer) as gateway:
            voice = Voice(Nature("urn:dev:mac:02005e0000000001", kind, Form.JSON), Random(1))
            sensor = Sensor(voice, timing, ledger, Random(1))
            await sensor.open(gateway.address)
            yield sensor, gateway, ledger
            sensor.close()


class Deaf:
    """Hear nothing of the first requests."""

    def __init__(self, count: int, then: Answer = acked) -> None:
        self._left = count
        self._then = then

    def __call__(self, request: bytes) -> Sequence[bytes]:
        self._left -= 1
        return self._then(request) if self._left < 0 else ()


async def test_an_ack_ends_the_event(tmp_path: Path) -> None:
    async with field(tmp_path, Kind.ID, acked) as (sensor, gateway, ledger):
        await sensor.report(sensor.voice.next_event(0))
        assert (ledger.counts.transmissions, ledger.counts.acked) == (1, 1)
        assert len(gateway.requests) == 1


async def test_a_retransmission_is_the_same_datagram(tmp_path: Path) -> None:
    async with field(tmp_path, Kind.ID, Deaf(4)) as (sensor, gateway, ledger):
        await sensor.report(sensor.voice.next_event(0))
        assert len(gateway.requests) == 5
        assert len({datagram for _, datagram in gateway.requests}) == 1
        assert (ledger.counts.transmissions, ledger.counts.acked) == (5, 1)


@pytest.mark.parametrize("kind", [Kind.ID, Kind.TIME])
async def test_after_max_retransmit_the_event_is_sent_anew(tmp_path: Path, kind: Kind) -> None:
    async with field(tmp_path, kind, Deaf(5)) as (sensor, gateway, ledger):
        await sensor.report(sensor.voice.next_event(0))
        first, again = gateway.requests[0][1], gateway.requests[5][1]
        assert first[2:4] != again[2:4]
        assert first[8:] == again[8:]
        assert ledger.counts.acked == 1


async def test_an_event_with_neither_id_nor_time_keeps_its_datagram(tmp_path: Path) -> None:
    async with field(tmp_path, Kind.NEITHER, Deaf(12)) as (sensor, gateway, ledger):
        await sensor.report(sensor.voice.next_event(0))
        assert len(gateway.requests) == 13
        assert len({datagram for _, datagram in gateway.requests}) == 1
        assert ledger.counts.acked == 1


async def test_two_equal_events_with_neither_are_two_requests(tmp_path: Path) -> None:
    async with field(tmp_path, Kind.NEITHER, acked) as (sensor, gateway, _):
        event = Event(sensor.voice.nature.device, data={"temperature": 21.0})
        await sensor.report(event)
        await sensor.report(event)
        (_, first), (_, second) = gateway.requests
        assert first[2:4] != second[2:4]
        assert first[8:] == second[8:]


async def test_an_event_with_neither_is_given_up_when_its_message_id_expires(tmp_path: Path) -> None:
    timing = replace(QUICK, exchange_lifetime_seconds=0.2)
    async with field(tmp_path, Kind.NEITHER, lambda _: (), timing) as (sensor, _, ledger):
        await sensor.report(sensor.voice.next_event(0))
        assert (ledger.counts.given_up, ledger.counts.acked, ledger.counts.in_flight) == (1, 0, 0)


async def test_a_separate_response_is_heard_and_acked(tmp_path: Path) -> None:
    async with field(tmp_path, Kind.ID, separate, Timing()) as (sensor, gateway, ledger):
        await sensor.report(sensor.voice.next_event(0))
        await sensor.report(sensor.voice.next_event(0))
        assert ledger.counts.acked == 2
        assert gateway.acks[0] == b"\x60\x00\xab\xcd"


async def test_a_refusal_ends_the_event_unacked(tmp_path: Path) -> None:
    async with field(tmp_path, Kind.ID, lambda request: acked(request, BAD_REQUEST)) as (sensor, _, ledger):
        await sensor.report(sensor.voice.next_event(0))
        assert (ledger.counts.refused, ledger.counts.acked) == (1, 0)


async def test_a_gateway_that_is_full_is_asked_again(tmp_path: Path) -> None:
    codes = iter((UNAVAILABLE, UNAVAILABLE))
    async with field(tmp_path, Kind.ID, lambda request: acked(request, next(codes, 0x44))) as (sensor, gateway, ledger):
        await sensor.report(sensor.voice.next_event(0))
        assert len(gateway.requests) == 3
        assert ledger.counts.acked == 1


async def test_an_answer_to_something_else_is_no_ack(tmp_path: Path) -> None:
    others = [b"", b"\x60", b"\x64\x44\x00\x00abcd", b"\x00\x44\x00\x00", b"\x6f\x44\x00\x00abcdefghijklmno"]
    answers = iter((others,))
    async with field(tmp_path, Kind.ID, lambda request: next(answers, acked(request))) as (sensor, gateway, ledger):
        await sensor.report(sensor.voice.next_event(0))
        assert len(gateway.requests) == 2
        assert ledger.counts.acked == 1


async def test_a_fleet_gets_everything_acked_over_a_bad_radio(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    plan = FleetPlan(sensors=24, events_min=400, events_per_second=2_000, timing=QUICK)
    sky = weather(request_loss=0.1, answer_loss=0.2, delay_seconds_min=0, delay_seconds_max=0.002)
    async with tiny_gateway() as gateway, Link(gateway.address, sky, seed=3) as link:
        with Ledger(path, lambda: 0) as ledger:
            await Fleet(plan, ledger, 3, lambda: 1_000).run(link.address, wanted=lambda: False)
    counts = ledger.counts
    assert counts.events >= 400
    assert counts.acked == counts.events
    assert counts.transmissions > 1.2 * counts.events
    assert link.traffic.requests == counts.transmissions

    told = [line.event for line in read(path) if isinstance(line, Told)]
    assert sum(isinstance(line, Sent) for line in read(path)) == counts.transmissions
    assert {event.device for event in told} == {event.device for event in told if event.data}
    assert len({event.device for event in told}) == 24


async def test_a_fleet_goes_on_while_more_is_wanted(tmp_path: Path) -> None:
    plan = FleetPlan(sensors=6, events_min=10, events_per_second=2_000, timing=QUICK)
    async with tiny_gateway() as gateway:
        with Ledger(tmp_path / "ledger.jsonl", lambda: 0) as ledger:
            await Fleet(plan, ledger, 3, lambda: 0).run(gateway.address, wanted=lambda: ledger.counts.acked < 100)
    assert ledger.counts.events >= 100
