"""Requests that are refused are seen at once, in one place for all protocols; what waits is bounded in bytes."""

import gc
import json
import logging
import socket
import tracemalloc
from pathlib import Path

import pytest

from agent.clock import SystemClock
from agent.config.settings import IdentitySettings
from agent.config.ways import limits
from agent.decode.decoded import EVENTS_MAX
from agent.delivery import Answer, Delivery, Media, Status
from agent.pipeline import Pipeline
from agent.store.port import Outcome
from agent.telemetry.refusals import LINES_MAX, LINES_MS, OTHERS, REASONS_MAX, SPAN_MS, RecentRequests, Refusals
from simulators.services import ports
from tests.agent.cli.running import RunningAgent
from tests.agent.coap.sensor import PUT, URI_PATH, datagram, post
from tests.agent.store.stores import HandClock
from tests.agent.test_admission import Intake
from tests.support.agent_process import agent_process, configured

WRONG = b'{"device":"urn:a","dta":{}}'
COAP = (
    post(1, payload=WRONG, content_format=50),
    post(2, path="event"),
    datagram(code=PUT, mid=3, options=((URI_PATH, b"e"),), payload=WRONG),
    post(4, options=((9, b"\x09"),)),  # OSCORE, which nobody has configured
)
HTTP = (("events", WRONG, 400), ("event", WRONG, 404), ("events", b"x" * 70_000, 413), ("status", WRONG, 405))


def answer(reason: str) -> Answer:
    return Answer(Status.UNDECODABLE, reason=reason)


def test_a_firmware_whose_every_request_is_refused_is_named_wherever_one_looks(tmp_path: Path) -> None:
    (coap,), (http,) = ports.free(1, socket.SOCK_DGRAM), ports.free(1)
    file = configured(tmp_path, coap=f"127.0.0.1:{coap}", http=f"127.0.0.1:{http}")
    agent = RunningAgent(file, coap, http)
    with agent_process(agent.configuration) as process:
        process.start()
        process.wait_for_log("agent=ready")
        for request in COAP:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sensor:
                sensor.settimeout(60)
                sensor.sendto(request, ("127.0.0.1", coap))
                assert sensor.recv(2048)[1] >> 5 == 4
        for path, body, code in HTTP:
            assert agent.api.post(f"/api/v1/{path}", body, "application/json").code == code
        status = agent.oncegate("status").stdout
        document = json.loads(agent.oncegate("status", "--json").stdout)
        findings = [json.loads(line) for line in agent.oncegate("doctor", "--json").stdout.splitlines()]
        shown = agent.api.get("/api/v1/live").document
        counted = agent.api.get("/metrics").body.decode()
        log = process.log()
    requests = len(COAP) + len(HTTP)
    assert (document["requests"]["requests"], document["requests"]["refused"]) == (requests, requests)
    assert document["requests"]["reasons"] == shown["status"]["requests"]["reasons"]
    assert f"{requests} of {requests} requests refused in the last minutes: " in " ".join(status.split())
    (finding,) = [one for one in findings if one["check"] == "requests"]
    assert finding["condition"] == "wrong"
    assert "undecodable: unknown field 'dta' (coap, 1, last from coap://127.0.0.1)" in finding["text"]
    for via in ("coap", "http"):
        assert f'oncegate_deliveries_refused_total{{reason="undecodable",via="{via}"}}' in counted
        assert f'oncegate_deliveries_refused_total{{reason="not found",via="{via}"}}' in counted
        assert f"request=refused via={via} sender=" in log
    assert [one["outcome"] for one in shown["feed"]] == ["refused"] * requests


def test_a_message_that_nobody_can_be_told_about_counts_as_a_request_that_is_refused() -> None:
    pipeline, answers = Pipeline(IdentitySettings(), HandClock(), Intake()), list[Answer]()
    pipeline.receive(Delivery(WRONG, Media.JSON, "mqtt", "urn:a"), answers.append)
    pipeline.receive(Delivery(b'{"device":"urn:a","id":1}', Media.JSON, "mqtt", "urn:a"), answers.append)
    assert [one.status for one in answers] == [Status.DURABLE] * 2
    counts, recent = pipeline.counts["mqtt"], pipeline.refusals.recent()
    assert (counts.acks, counts.taken, counts.rejected["invalid"], counts.refused.total()) == (2, 1, 1, 1)
    assert (recent.requests, recent.refused) == (2, 1)
    assert [one["outcome"] for one in pipeline.activity.feed(0)][:-1] == ["rejected"]


def test_reasons_and_lines_are_bounded_and_each_is_logged_once_an_hour(caplog: pytest.LogCaptureFixture) -> None:
    clock = HandClock()
    refusals = Refusals(lambda: 5, clock)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            for number in range(2 * REASONS_MAX):
                refusals.add("coap", "coap://[::1]", answer(f"reason {number} " + "x" * 10_000))
    assert len(caplog.records) == LINES_MAX
    recent = refusals.recent()
    assert (recent.requests, recent.refused) == (6 * REASONS_MAX, 6 * REASONS_MAX)
    assert recent.reasons[0].reason == OTHERS
    assert RecentRequests.of(json.loads(refusals.document())) == recent
    caplog.clear()
    clock.pass_seconds(LINES_MS / 1000)
    with caplog.at_level(logging.WARNING):
        refusals.add("coap", "coap://[::1]", answer("reason 0"))
    assert len(caplog.records) == 1


def test_what_is_shown_is_of_the_last_minutes_only() -> None:
    clock, taken = HandClock(), 0
    refusals = Refusals(lambda: taken, clock)
    for _ in range(10):
        refusals.add("http", "http://[::1]", answer("a"))
        taken += 3
        clock.pass_seconds(SPAN_MS / 2000)
    recent = refusals.recent()
    assert 2 <= recent.refused <= 4
    assert recent.requests == 4 * recent.refused
    assert SPAN_MS <= clock.wall_ms() - recent.since <= 2 * SPAN_MS
    clock.pass_seconds(SPAN_MS / 250)
    assert refusals.recent().refused == 0
    assert refusals.recent().text() == "none refused in the last minutes"


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
    pipeline = Pipeline(IdentitySettings(), SystemClock(trusted=True), Intake(holds=True))
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
    intake = Intake(holds=True)
    pipeline = Pipeline(IdentitySettings(), SystemClock(trusted=True), intake)
    body, media = BODIES["a long text"]
    first = {via: _fill(pipeline, body, media, via) for via in limits()}
    assert all(pipeline.budgets[via].bytes < one.memory_bytes + 2_000_000 for via, one in limits().items())
    while intake.submissions:
        intake.submissions.pop().done(Outcome(accepted=1))
    assert {via: _fill(pipeline, body, media, via) for via in limits()} == first
    assert pipeline.counts["http"].refused[Status.UNAVAILABLE] == 2
