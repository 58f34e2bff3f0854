"""The memory of deliveries in progress is bounded in bytes, for all contents of bodies."""

from __future__ import annotations

import gc
import json
import tracemalloc

import pytest

from agent.clock import SystemClock
from agent.config.settings import IdentitySettings
from agent.config.ways import limits
from agent.decode.decoded import EVENTS_MAX
from agent.delivery import Answer, Delivery, Media, Status
from agent.pipeline import Pipeline
from agent.store.port import Outcome, Submission

COPIES = 4
DEVICE = "coap://[::1]"


def _array(count: int) -> bytes:
    return b"\x99" + count.to_bytes(2, "big")


def _event(data: object) -> str:
    return json.dumps({"device": "d", "data": {"x": data}}, ensure_ascii=False)


def _pack(event: str, count: int, *others: str) -> bytes:
    return f"[{','.join([event] * count + list(others))}]".encode()


BODIES = {
    "a small event": (b'{"device":"sensor-17","id":1,"data":{"t":21.5}}', Media.JSON),
    "a long text": (_event("a" * 60_000).encode(), Media.JSON),
    "a long text of wide characters": (_event("a" * 60_000 + "\U0001f600").encode(), Media.JSON),
    "empty events": (_pack("{}", EVENTS_MAX), Media.JSON),
    "wrong events": (_pack('{"id":1.5}', EVENTS_MAX - 1, "{}"), Media.JSON),
    "empty lists": (_pack(_event([[]] * 4_000), 5), Media.JSON),
    "maps of one": (_pack(_event([{"a": 1}] * 1_200), 5), Media.JSON),
    "empty maps in CBOR": (_array(4) + (b"\xa1\x64data\xa1\x61x" + _array(4_000) + b"\xa0" * 4_000) * 4, Media.CBOR),
    "many events of empty maps in CBOR": (
        _array(EVENTS_MAX) + b"\xa1\x64data\xa1\x61x\x84\xa0\xa0\xa0\xa0" * EVENTS_MAX,
        Media.CBOR,
    ),
}


class Held:
    """An intake that stores nothing yet."""

    def __init__(self) -> None:
        self.submissions: list[Submission] = []

    def submit(self, submission: Submission) -> None:
        self.submissions.append(submission)

    def answer_all(self) -> None:
        while self.submissions:
            self.submissions.pop().done(Outcome(accepted=1))


def _fill(pipeline: Pipeline, body: bytes, media: Media, via: str) -> int:
    """Deliver until one is refused; return how many were accepted."""
    answers: list[Answer] = []
    count = 0
    while not answers:
        copy = bytes(bytearray(body))  # as the network would deliver it
        pipeline.receive(Delivery(copy, media, via, DEVICE), answers.append)
        count += not answers
    assert answers[0].status is Status.UNAVAILABLE
    assert answers[0].retry_seconds
    return count


@pytest.mark.guarantee(6)
@pytest.mark.parametrize("name", BODIES)
def test_a_delivery_in_progress_takes_no_more_memory_than_is_counted_for_it(name: str) -> None:
    body, media = BODIES[name]
    pipeline = Pipeline(IdentitySettings(), SystemClock(trusted=True), Held())
    copies = [bytes(bytearray(body)) for _ in range(COPIES)]  # as the network would deliver them
    answers: list[Answer] = []
    pipeline.receive(Delivery(body, media, "http", DEVICE), answers.append)  # fills the caches that all share
    gc.collect()
    tracemalloc.start()
    while copies:
        pipeline.receive(Delivery(copies.pop(), media, "coap", DEVICE), answers.append)
    gc.collect()
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    counted = pipeline.budgets["coap"].bytes
    assert not answers
    assert used + COPIES * len(body) <= counted <= 20 * (used + COPIES * len(body))


@pytest.mark.guarantee(6)
def test_once_there_are_answers_there_is_room_and_no_way_in_takes_that_of_another() -> None:
    intake = Held()
    pipeline = Pipeline(IdentitySettings(), SystemClock(trusted=True), intake)
    body, media = BODIES["a long text"]
    first = {via: _fill(pipeline, body, media, via) for via in limits()}
    assert all(pipeline.budgets[via].bytes < one.memory_bytes + 2_000_000 for via, one in limits().items())
    intake.answer_all()
    assert {via: _fill(pipeline, body, media, via) for via in limits()} == first
    assert pipeline.counts["http"].refused[Status.UNAVAILABLE] == 2
