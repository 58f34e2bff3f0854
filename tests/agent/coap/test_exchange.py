"""Requests in progress, their retransmissions, others with the same Message ID or Token, and the end of the server."""

import asyncio
from contextlib import ExitStack
from random import Random

import pytest

from agent.coap.exchange import SeparateResponses
from agent.coap.slow_path import resource
from agent.coap.tuning import Tuning
from agent.coap.udp import endpoint_of
from agent.delivery import Answer, Status
from agent.listening import BindError
from agent.pace import TURN_SECONDS_MAX
from tests.agent.coap.sensor import ACK, BODY, CHANGED, CON, NON, RST, Response, Sensor, datagram, post
from tests.agent.coap.serving import both_paths, serving
from tests.agent.coap.stepped_loop import SteppedLoop
from tests.agent.recorder import DURABLE, Recorder
from tests.support.loop_turns import LoopTurns
from tests.support.waiting import until


@pytest.mark.guarantee(1)
async def test_a_request_and_its_retransmissions_are_met_with_silence_until_the_outcome_and_answered_once() -> None:
    recorder = Recorder(answer=None)
    async with serving(recorder) as server, Sensor(server.port) as sensor:
        for _ in range(3):
            sensor.send(post(mid=5))
        await sensor.expect_silence()
        assert len(recorder.deliveries) == 1
        recorder.respond()
        assert await sensor.receive() == Response(ACK, 0x44, 5, b"\x01", b"")
        await sensor.expect_silence()
        assert (server.counters.fast, server.counters.duplicates) == (1, 2)


@pytest.mark.parametrize("kind", [CON, NON])
@pytest.mark.parametrize(
    ("status", "lasts"),
    [
        *((status, True) for status in (Status.DURABLE, Status.UNDECODABLE, Status.UNKNOWN_FORMAT, Status.TOO_LARGE)),
        *((status, False) for status in (Status.UNAVAILABLE, Status.UNAUTHENTICATED, Status.FORBIDDEN)),
    ],
)
async def test_a_retransmission_after_a_lasting_answer_gets_the_same_and_another_is_decided_again(
    kind: int, status: Status, lasts: bool
) -> None:
    recorder = Recorder(Answer(status, reason="as it is"))
    async with serving(recorder) as server, Sensor(server.port) as sensor:
        first = await sensor.ask(post(kind=kind))
        recorder.answer = DURABLE
        again = await sensor.ask(post(kind=kind))
    assert again == first if lasts else again.code == CHANGED != first.code
    assert len(recorder.deliveries) == (1 if lasts else 2)
    assert len({delivery.retransmission_key for delivery in recorder.deliveries}) == 1


@pytest.mark.guarantee(4)
async def test_once_the_store_has_forgotten_events_a_retransmission_is_asked_about_again(recorder: Recorder) -> None:
    async with serving(recorder) as server, Sensor(server.port) as sensor:
        await sensor.ask(post())
        server.forget_answers()
        await sensor.ask(post())
    assert len(recorder.deliveries) == 2


@pytest.mark.guarantee(2)
@both_paths
async def test_other_bytes_another_port_and_another_address_of_ours_make_a_new_request(fast: bool) -> None:
    recorder = Recorder()
    async with serving(recorder, fast=fast) as server:
        with ExitStack() as stack:
            to = ("127.0.0.1", "127.0.0.1", "127.0.0.2")  # each answer leaves from there: the sockets are connected
            sensors = [stack.enter_context(Sensor(server.port, host)) for host in to]
            for sensor in sensors:
                assert (await sensor.ask(post(mid=5, token=b"t"))).code == CHANGED
            await sensors[0].ask(post(mid=5, token=b"t", payload=BODY[:-1] + b"\x02"))
    assert len({delivery.retransmission_key for delivery in recorder.deliveries}) == 4
    assert {delivery.sender for delivery in recorder.deliveries} == {"coap://127.0.0.1"}


@pytest.mark.guarantee(2)
async def test_a_restart_of_the_server_changes_no_proof(recorder: Recorder) -> None:
    with ExitStack() as sensors:
        async with serving(recorder) as server:
            port = server.port
            sensor = sensors.enter_context(Sensor(port))
            await sensor.ask(post())
        async with serving(recorder, bind=f"[::]:{port}"):
            await sensor.ask(post())
    first, second = recorder.deliveries
    assert first.retransmission_key == second.retransmission_key


@both_paths
async def test_requests_with_one_token_are_answered_each(fast: bool) -> None:
    recorder = Recorder(answer=None)
    async with serving(recorder, fast=fast) as server, Sensor(server.port) as sensor:
        sensor.send(post(mid=5, token=b"t"))
        sensor.send(post(mid=6, token=b"t"))
        await recorder.received(2)
        recorder.respond()
        recorder.respond()
        assert {(await sensor.receive()).mid, (await sensor.receive()).mid} == {5, 6}


async def test_too_many_requests_in_progress_are_refused_for_now() -> None:
    recorder = Recorder(answer=None)
    async with serving(recorder, Tuning(exchanges_max=1)) as server, Sensor(server.port) as sensor:
        sensor.send(post(mid=5))
        refused = await sensor.ask(post(mid=6))
        assert (refused.mid, refused.code, refused.rest[:3]) == (6, 0xA3, b"\xd1\x01\x05")
        recorder.respond()
        assert (await sensor.receive()).mid == 5
        sensor.send(post(mid=6))
        await recorder.received(2)
        recorder.respond()
        assert await sensor.receive() == Response(ACK, 0x44, 6, b"\x01", b"")
        assert server.counters.busy == 1


SOON = Tuning(empty_ack_seconds=0.02, ack_timeout_seconds=0.02, ack_random_factor=1.1)
PATIENT = Tuning(empty_ack_seconds=0.02, drain_seconds_max=0.05)

ENDPOINT = endpoint_of(("::1", 5_683, 0, 0), b"")
A_MOMENT = 0.2
"""More than the machine needs for a step, less than any wait."""


class Chance(Random):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self._factor = factor

    def uniform(self, a: float, b: float) -> float:
        assert (a, b) == (1, Tuning().ack_random_factor)
        return self._factor


def ack_or_reset(kind: int, mid: int) -> bytes:
    return datagram(kind, 0, mid, b"")


@both_paths
@pytest.mark.parametrize("kind", [ACK, RST])
async def test_after_an_empty_ack_the_answer_is_sent_until_an_ack_or_reset(fast: bool, kind: int) -> None:
    recorder = Recorder(answer=None)
    async with serving(recorder, SOON, fast=fast) as server, Sensor(server.port) as sensor:
        assert await sensor.ask(post(mid=5, token=b"tok")) == Response(ACK, 0, 5, b"", b"")
        recorder.respond()
        first = await sensor.receive()
        assert (first.kind, first.code, first.token, first.rest) == (CON, 0x44, b"tok", b"")
        assert await sensor.receive() == first
        sensor.send(ack_or_reset(kind, first.mid))
        await sensor.expect_silence()


async def test_a_retransmission_after_the_empty_ack_is_acknowledged_again() -> None:
    recorder = Recorder(answer=None)
    async with serving(recorder, PATIENT) as server, Sensor(server.port) as sensor:
        assert await sensor.ask(post(mid=5)) == Response(ACK, 0, 5, b"", b"")
        assert await sensor.ask(post(mid=5)) == Response(ACK, 0, 5, b"", b"")
        recorder.respond()
        answer = await sensor.receive()
        sensor.send(ack_or_reset(ACK, answer.mid))
        assert await sensor.ask(post(mid=5)) == Response(ACK, 0x44, 5, b"\x01", b"")
    assert len(recorder.deliveries) == 1


async def test_each_request_in_progress_gets_its_empty_ack_in_its_own_time() -> None:
    recorder = Recorder(answer=None)
    with SteppedLoop() as clock:
        async with serving(recorder, Tuning(drain_seconds_max=0.05)) as server, Sensor(server.port) as sensor:
            sensor.send(post(mid=5))
            await recorder.received(1)
            await clock.advance(12)
            sensor.send(post(mid=6))
            await recorder.received(2)
            await clock.advance(9)
            assert await sensor.receive() == Response(ACK, 0, 5, b"", b"")
            await sensor.expect_silence()
            await clock.advance(12)
            assert await sensor.receive() == Response(ACK, 0, 6, b"", b"")


async def test_a_late_refusal_is_told_and_not_remembered() -> None:
    recorder = Recorder(answer=None)
    async with serving(recorder, PATIENT) as server, Sensor(server.port) as sensor:
        await sensor.ask(post(mid=5))
        recorder.respond(Answer(Status.UNAVAILABLE, retry_seconds=3))
        late = await sensor.receive()
        assert (late.kind, late.code) == (CON, 0xA3)
        sensor.send(ack_or_reset(ACK, late.mid))
        sensor.send(post(mid=5))
        await recorder.received(2)
        recorder.respond()
        while (await sensor.receive()).code != 0x44:
            pass


async def test_a_non_confirmable_request_gets_no_empty_ack() -> None:
    recorder = Recorder(answer=None)
    async with serving(recorder, PATIENT) as server, Sensor(server.port) as sensor:
        sensor.send(post(mid=5, kind=NON))
        assert await sensor.ask(post(mid=6)) == Response(
            ACK, 0, 6, b"", b""
        )  # the later one's empty ACK: no other was received
        sensor.send(post(mid=5, kind=NON))
        await sensor.expect_silence()
        recorder.respond()
        assert (await sensor.receive()).kind == NON


@pytest.mark.parametrize("chance", [1.0, 1.25, 1.5])
async def test_the_waits_between_retransmissions_are_doubled(chance: float) -> None:
    """RFC 7252 section 4.2: the first lasts ACK_TIMEOUT to ACK_TIMEOUT * ACK_RANDOM_FACTOR seconds."""
    tuning, sent = Tuning(), []
    with SteppedLoop() as clock:
        responses = SeparateResponses(lambda *what: sent.append(what), tuning, Chance(chance))
        responses.send(b"\x40\x44\x00\x07", ENDPOINT)
        for transmissions, waits in enumerate((1, 2, 4, 8, 16), 1):
            await clock.advance(tuning.ack_timeout_seconds * chance * waits - A_MOMENT)
            assert (len(sent), len(responses)) == (transmissions, 1)
            await clock.advance(2 * A_MOMENT)
        assert sent == [(b"\x40\x44\x00\x07", ENDPOINT)] * (1 + tuning.retransmits_max)
        assert len(responses) == 0


async def test_an_answer_with_the_message_id_of_an_earlier_one_takes_its_place() -> None:
    tuning, chance = Tuning(), 1.25
    sent: list[bytes] = []
    with SteppedLoop() as clock:
        responses = SeparateResponses(lambda what, _: sent.append(what), tuning, Chance(chance))
        responses.send(b"\x40\x44\x00\x07", ENDPOINT)
        await clock.advance(A_MOMENT)
        responses.send(b"\x40\x44\x00\x07later", ENDPOINT)
        await clock.advance(tuning.ack_timeout_seconds * chance - A_MOMENT / 2)
        assert sent == [b"\x40\x44\x00\x07", b"\x40\x44\x00\x07later"], "the timer of the earlier one is cancelled"
        await clock.advance(A_MOMENT)
        assert sent[2:] == [b"\x40\x44\x00\x07later"]
        assert responses.stop_retransmitting(ENDPOINT.address, b"\x00\x07")
        assert len(responses) == 0


@pytest.mark.guarantee(6)
async def test_answers_that_nobody_has_acknowledged_count_among_the_requests_in_progress() -> None:
    tuning = Tuning(empty_ack_seconds=0.02, exchanges_max=3, drain_seconds_max=0.05)
    recorder = Recorder(answer=None)
    async with serving(recorder, tuning) as server, Sensor(server.port) as sensor, Sensor(server.port) as other:
        late = []
        for mid in range(3):
            await sensor.ask(post(mid=mid))
            recorder.respond()
            late.append(await sensor.receive())
        recorder.answer = DURABLE
        assert (await other.ask(post(mid=8))).code == 0xA3
        assert server.counters.busy == 1
        sensor.send(ack_or_reset(ACK, late[0].mid))
        await sensor.expect_silence()
        assert (await other.ask(post(mid=9))).code == CHANGED
        assert (await other.ask(post(mid=10))).code == CHANGED
    assert len(recorder.deliveries) == 5


@both_paths
async def test_draining_takes_nothing_more_and_answers_what_is_in_progress(fast: bool) -> None:
    recorder = Recorder(answer=None)
    async with serving(recorder, fast=fast) as server, Sensor(server.port) as sensor:
        sensor.send(post(mid=1))
        await recorder.received(1)
        draining = asyncio.create_task(server.drain())
        await asyncio.sleep(0)
        sensor.send(post(mid=2))
        assert server.in_progress == 1
        recorder.respond()
        assert (await sensor.receive()).code == CHANGED
        await draining
        assert server.in_progress == 0
    assert len(recorder.deliveries) == 1


@both_paths
async def test_leaving_drains(fast: bool) -> None:
    recorder = Recorder(answer=None)
    with ExitStack() as sensors:
        async with serving(recorder, fast=fast) as server:
            sensor = sensors.enter_context(Sensor(server.port))
            sensor.send(post())
            await recorder.received(1)
            asyncio.get_running_loop().call_later(0.01, recorder.respond)
        assert (await sensor.receive()).code == CHANGED


@both_paths
async def test_a_server_that_is_closed_waits_no_longer_than_its_bound(fast: bool) -> None:
    recorder = Recorder(answer=None)
    async with serving(recorder, Tuning(drain_seconds_max=0.02), fast=fast) as server, Sensor(server.port) as sensor:
        sensor.send(post())
        await recorder.received(1)
    recorder.respond()  # too late, without effect


async def test_a_port_in_use_is_an_error_that_names_it() -> None:
    async with serving(Recorder()) as server:
        bind = f"[::]:{server.port}"
        with pytest.raises(BindError, match=rf"coap.bind.*\[::\]:{server.port}"):
            await serving(Recorder(), bind=bind).__aenter__()


DATAGRAMS = 48
PER_TURN = 2
SECONDS_EACH = TURN_SECONDS_MAX / PER_TURN
BUSY = 0xA3
QUICK = Tuning(slow_per_second=1e6)


@pytest.mark.guarantee(6)
@pytest.mark.parametrize("fast", [True, False])
async def test_slow_bodies_take_no_more_than_their_turn(*, fast: bool) -> None:
    turns = LoopTurns()
    with SteppedLoop() as clock:
        async with serving(Recorder(work=turns.working(clock, SECONDS_EACH)), QUICK, fast=fast) as server:
            with Sensor(server.port) as sensor, turns.counting():
                for number in range(DATAGRAMS):
                    sensor.send(post(number, number.to_bytes(2, "big")))
                await until(lambda: turns.total == DATAGRAMS, "all are taken")
    assert turns.most <= PER_TURN


@pytest.mark.heavy
async def test_a_datagram_that_raises_an_error_keeps_no_other_waiting() -> None:
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))
    turns = LoopTurns()

    def work() -> None:
        turns.note()
        if turns.total == 1:
            raise RuntimeError("the first one")

    async with serving(Recorder(work=work), QUICK) as server, Sensor(server.port) as sensor:
        for number in range(DATAGRAMS):
            sensor.send(post(number, number.to_bytes(2, "big")))
        codes = [(await sensor.receive()).code for _ in range(DATAGRAMS - 1)]
    assert set(codes) == {CHANGED}
    assert [str(error) for error in errors] == ["the first one"]


@pytest.mark.guarantee(6)
async def test_bodies_that_wait_for_their_turn_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "WAITING_BYTES_MAX", 10 * len(BODY))
    turns = LoopTurns()
    with SteppedLoop() as clock:
        async with serving(Recorder(work=turns.working(clock, TURN_SECONDS_MAX)), QUICK, fast=False) as server:
            with Sensor(server.port) as sensor:
                for number in range(DATAGRAMS):
                    sensor.send(post(number, number.to_bytes(2, "big")))
                codes = [(await sensor.receive()).code for _ in range(DATAGRAMS)]
            await until(lambda: not server.in_progress, "nothing is left in progress")
    assert set(codes) == {CHANGED, BUSY}
    assert codes.count(CHANGED) == turns.total >= 10
