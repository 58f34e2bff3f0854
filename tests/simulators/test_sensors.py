"""Every kind of sensor with a minimal gateway: its payloads, its requests, its end, its ledger."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import chain, repeat
from math import isnan
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import cbor2
import pytest

from agent.decode.delivery_body import decode
from agent.delivery import Delivery, Media
from contract.event import Event
from simulators import fleet
from simulators.ledger import Acked, GivenUp, Ledger, Line, Reported, Sent, read
from simulators.link.faults import link_profile
from simulators.link.udp import Link
from simulators.oracle.statement import canonical
from simulators.payloads import DeviceProfile, KnownBy, PayloadFormat, PayloadGenerator, device_profile, identified_by
from simulators.scenario import Bug, FleetPlan, LinkPlan, SensorKind
from simulators.sensors.endpoint import Timing
from simulators.sensors.field import Field, Targets
from simulators.sensors.reporter import Reporter
from simulators.services import ports
from tests.simulators.run.minimal_gateway import (
    BAD_REQUEST,
    UNAVAILABLE,
    Answer,
    MinimalGateway,
    acked,
    minimal_gateway,
    separate,
)
from tests.support.waiting import until_count

QUICK = Timing().faster(200)
PLAN = FleetPlan(SensorKind.COAP, sensors=1, every_seconds=0.05)


def _field(
    ledger: Ledger, address: tuple[str, int], seconds: float = 0.5, timing: Timing = QUICK, seed: int = 1
) -> Field:
    return Field(
        ledger, seed, Targets(coap=address), timing, lambda moment: moment >= seconds, lambda: 1_763_706_000_000
    )


@asynccontextmanager
async def reporter(
    tmp_path: Path, kind: KnownBy, answer: Answer, timing: Timing = QUICK, plan: FleetPlan = PLAN
) -> AsyncIterator[tuple[Reporter, MinimalGateway, Ledger]]:
    with Ledger(tmp_path / "ledger.jsonl", lambda: 0) as ledger:
        async with minimal_gateway(answer) as gateway:
            generator = PayloadGenerator(
                DeviceProfile("urn:dev:mac:02005e0000000001", kind, PayloadFormat.JSON), Random(1)
            )
            sensor = Reporter(_field(ledger, gateway.address, timing=timing), generator, plan, Random(1))
            await sensor.endpoint.open(gateway.address)
            yield sensor, gateway, ledger
            sensor.endpoint.close()


def silence(_: bytes) -> Sequence[bytes]:
    return ()


def deaf(count: int, first: Answer = silence) -> Answer:
    """Return a gateway that acks none of the first requests."""
    answers: Iterator[Answer] = chain(repeat(first, count), repeat(acked))

    def answer(request: bytes) -> Sequence[bytes]:
        return next(answers)(request)

    return answer


refusal, full_store = (partial(acked, code=code) for code in (BAD_REQUEST, UNAVAILABLE))
ONE_EXCHANGE = Timing(0.01, ack_random_factor=1.0, pause_seconds_max=0.0, exchange_lifetime_seconds=0.6)
"""An exchange takes 0.31 s: a second one would end at 0.62 s."""


@pytest.mark.parametrize(
    ("kind", "first", "given", "requests", "datagrams", "end"),
    [
        pytest.param(KnownBy.ID, (4, silence), {}, 5, 1, "acked", id="a retransmission is the same datagram"),
        pytest.param(KnownBy.NEITHER, (12, silence), {}, 13, 1, "acked", id="an event with neither keeps it"),
        pytest.param(
            KnownBy.NEITHER, (99, silence), {"timing": ONE_EXCHANGE}, 5, 1, "given_up", id="its lifetime ends"
        ),
        pytest.param(KnownBy.ID, (99, silence), {"plan": replace(PLAN, tries=2)}, 10, 2, "given_up", id="two tries"),
        pytest.param(KnownBy.TIME, (5, silence), {}, 6, 2, "acked", id="after MAX_RETRANSMIT it is sent anew"),
        pytest.param(KnownBy.ID, (1, refusal), {}, 1, 1, "refused", id="a refusal ends the event"),
        pytest.param(KnownBy.ID, (2, full_store), {}, 3, 3, "acked", id="a full store does not"),
    ],
)
async def test_what_becomes_of_an_event(
    tmp_path: Path,
    kind: KnownBy,
    first: tuple[int, Answer],
    given: dict[str, Any],
    requests: int,
    datagrams: int,
    end: str,
) -> None:
    async with reporter(tmp_path, kind, deaf(*first), **given) as (sensor, gateway, ledger):
        await sensor.report(sensor.generator.next_event(0))
        sent = [datagram for _, datagram in gateway.requests]
        assert (len(sent), len(set(sent))) == (requests, datagrams)
        assert len({datagram[2:4] for datagram in sent}) == datagrams
        assert len({datagram[8:] for datagram in sent}) == 1  # an event that is sent anew says the same
        assert (getattr(ledger.counts, end), ledger.counts.open, ledger.counts.transmissions) == (1, 0, requests)
    entered = [line.again for line in read(tmp_path / "ledger.jsonl") if isinstance(line, Sent)]
    assert entered.count(False) == datagrams


async def test_two_equal_events_with_neither_are_two_requests(tmp_path: Path) -> None:
    async with reporter(tmp_path, KnownBy.NEITHER, acked) as (sensor, gateway, _):
        event = Event(sensor.generator.profile.device, data={"temperature": 21.0})
        await sensor.report(event)
        await sensor.report(event)
        (_, first), (_, second) = gateway.requests
        assert first[2:4] != second[2:4]
        assert first[8:] == second[8:]


async def test_a_separate_answer_counts_and_is_acked(tmp_path: Path) -> None:
    async with reporter(tmp_path, KnownBy.ID, separate) as (sensor, gateway, ledger):
        await sensor.report(sensor.generator.next_event(0))
        assert ledger.counts.acked == 1
        await until_count(lambda: len(gateway.acks), 1, "acks")
        assert gateway.acks == [b"\x60\x00\xab\xcd"]


async def _play(
    tmp_path: Path, plan: FleetPlan, answer: Answer, seconds: float = 0.5, link: LinkPlan | None = None, seed: int = 1
) -> tuple[MinimalGateway, list[Line]]:
    file = tmp_path / f"{uuid4()}.jsonl"
    with Ledger(file, lambda: 0) as ledger:
        async with (
            minimal_gateway(answer) as gateway,
            Link([gateway.address], link_profile(link or LinkPlan()), seed) as radio,
        ):
            field = _field(ledger, radio.address, seconds, seed=seed)
            field.targets = Targets(coap=radio.address, register_peer=radio.register_peer)
            await fleet.play([plan], field)
    return gateway, list(read(file))


async def test_a_relay_that_hears_nothing_gives_up_what_is_left_and_says_so(tmp_path: Path) -> None:
    (nobody,) = ports.free(1)
    plan = FleetPlan(SensorKind.HTTP, sensors=1, every_seconds=0.02, tries=3)
    with Ledger(tmp_path / "ledger.jsonl", lambda: 0) as ledger:
        field = replace(_field(ledger, ("::1", 9)), targets=Targets(http=("127.0.0.1", nobody)))
        await fleet.play([plan], field)
        assert ledger.counts.given_up == ledger.counts.events > 5
        assert (ledger.counts.open, ledger.counts.in_flight) == (0, 0)


STORED = replace(PLAN, kind=SensorKind.STORE_AND_FORWARD, every_seconds=0.01, formats=(PayloadFormat.CBOR,))


def packs_of(gateway: MinimalGateway) -> list[list[Any]]:
    bodies = [cbor2.loads(datagram.split(b"\xff", 1)[1]) for _, datagram in gateway.requests]
    return [body if isinstance(body, list) else [body] for body in bodies]


async def test_a_store_and_forward_sensor_cuts_its_packs_anew_after_a_lost_ack(tmp_path: Path) -> None:
    gateway, lines = await _play(tmp_path, replace(STORED, pack_max=10), deaf(25), seconds=0.3)
    sizes = [len(pack) for pack in packs_of(gateway)]
    assert len(set(sizes)) > 1
    reported = [line.mark for line in lines if isinstance(line, Reported)]
    assert sorted(line.mark for line in lines if isinstance(line, Acked)) == reported
    assert sum(sizes) == sum(isinstance(line, Sent) for line in lines) > len(reported)


async def test_a_store_and_forward_sensor_begins_with_what_it_has_stored(tmp_path: Path) -> None:
    plan = replace(STORED, every_seconds=60, backlog_seconds=3_600, known_by=(KnownBy.TIME,))
    _, lines = await _play(tmp_path, plan, acked, seconds=0.01)
    times = [line.event.time or 0 for line in lines if isinstance(line, Reported)]
    assert len(times) >= 60
    assert times == sorted(times)
    assert times[0] == 1_763_706_000_000 - 3_600_000


async def test_a_dead_probe_stands_beside_good_readings(tmp_path: Path) -> None:
    gateway, _ = await _play(tmp_path, replace(STORED, bugs=(Bug.NAN_IN_PACK,)), acked)
    dead = [pack for pack in packs_of(gateway) if isnan(pack[-1]["data"].get("probe", 0))]
    assert dead
    assert all(len(pack) > 1 for pack in dead)


async def test_a_non_confirmable_sensor_sends_an_event_a_few_times_and_never_comes_back_to_it(tmp_path: Path) -> None:
    plan = replace(PLAN, kind=SensorKind.NON_CONFIRMABLE, repeats=3)
    gateway, lines = await _play(tmp_path, plan, silence)
    assert all(datagram[0] >> 4 == 0b0101 for _, datagram in gateway.requests)
    reported = sum(isinstance(line, Reported) for line in lines)
    assert len(gateway.requests) == 3 * reported
    assert sum(isinstance(line, GivenUp) for line in lines) == reported > 0


async def test_a_sleepy_sensor_begins_with_the_same_message_id_and_a_token_of_its_own(tmp_path: Path) -> None:
    """With the token of the event before, a late answer to that would count for this one."""
    plan = replace(PLAN, kind=SensorKind.SLEEPY, known_by=(KnownBy.ID,), formats=(PayloadFormat.JSON,), boot=True)
    gateway, lines = await _play(tmp_path, plan, acked)
    assert len(gateway.requests) > 2
    boots = [line.event.boot for line in lines if isinstance(line, Reported)]
    assert len({datagram[2:4] for _, datagram in gateway.requests}) == 1
    assert len({datagram[4:8] for _, datagram in gateway.requests}) == len(boots)
    assert boots == list(range(1, len(boots) + 1))


async def test_firmware_bugs_show_in_what_is_told(tmp_path: Path) -> None:
    quick = replace(PLAN, every_seconds=0.005, known_by=(KnownBy.ID,), formats=(PayloadFormat.JSON,))
    _, lines = await _play(tmp_path, replace(quick, bugs=(Bug.COUNTER_RESTARTS,)), acked)
    ids = [line.event.id for line in lines if isinstance(line, Reported)]
    assert ids.count(1) > 2
    _, lines = await _play(tmp_path, replace(quick, bugs=(Bug.IDS_REPEATED,)), acked)
    events = [line.event for line in lines if isinstance(line, Reported)]
    assert len({event.id for event in events}) < len(events) == len({(event.id, str(event.data)) for event in events})
    restamping = replace(quick, known_by=(KnownBy.TIME,), bugs=(Bug.RESTAMPED_RESENDS,))
    _, lines = await _play(tmp_path, restamping, deaf(5), seconds=0.1)
    assert any(line.time is not None for line in lines if isinstance(line, Sent))


@pytest.mark.guarantee(0)
async def test_the_same_seed_gives_the_same_field_test(tmp_path: Path) -> None:
    """Events and their times follow from the seed alone; so do the link's faults (test_faults.py)."""
    plan = FleetPlan(SensorKind.COAP, sensors=12, every_seconds=0.1, known_by=tuple(KnownBy))
    radio = LinkPlan(request_loss=0.3, answer_loss=0.3)

    async def reported(seed: int) -> dict[str, list[Event]]:
        _, lines = await _play(tmp_path, plan, acked, link=radio, seed=seed)
        events = [line.event for line in lines if isinstance(line, Reported)]
        return {device: [one for one in events if one.device == device] for device in {one.device for one in events}}

    first, again, other = await reported(7), await reported(7), await reported(8)
    assert first == again
    assert first != other


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
