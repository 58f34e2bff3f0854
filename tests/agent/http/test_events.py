"""Events over HTTP: which are accepted or refused, and why; OpenAPI describes the server."""

import json
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import cbor2
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from agent.config.lanes import Lane
from agent.config.ways import limits
from agent.delivery import Answer, Delivery, Media, Respond, Status
from agent.forward.kafka.health import UNREACHABLE
from agent.http.page import VIAS
from agent.http.response import MEDIA_TYPES
from agent.telemetry.links import LinkName
from tests.agent.http.client import Raw, Response
from tests.agent.http.serving import EVENT, FINGERPRINT, POST, Served, serving, token_file
from tests.agent.mappings.payloads import PUBLISHED
from tests.agent.store.stores import stored_events

DEVICE = "urn:dev:mac:00158d0001a2b3c4"
SENML = [{"bn": f"{DEVICE}:", "n": "temperature", "v": 21.5, "bt": 1_767_225_600}]


async def test_an_event_is_taken_once_and_a_copy_is_said_to_be_one(served: Served) -> None:
    first = await served.client.post(EVENT)
    second = await served.client.post(EVENT)
    stored = stored_events(served.store)
    assert (first.code, second.code) == (200, 200)
    assert first.document == {"accepted": 1, "duplicates": 0, "rejected": 0, "fingerprints": [FINGERPRINT]}
    assert second.document == {"accepted": 0, "duplicates": 1, "rejected": 0, "fingerprints": [FINGERPRINT]}
    assert [event.fingerprint.hex() for event in stored][1:] == [FINGERPRINT]
    assert b'"via":"http"' in stored[1].tail


@pytest.mark.parametrize(
    ("media", "body"),
    [
        ("application/json", EVENT),
        ("Application/JSON; charset=utf-8", EVENT),
        ("application/cbor", cbor2.dumps(json.loads(EVENT))),
        ("application/senml+json", json.dumps(SENML).encode()),
        ("application/senml+cbor", cbor2.dumps([{-2: f"{DEVICE}:", 0: "temperature", 2: 21.5, -3: 1_767_225_600}])),
    ],
)
async def test_each_format_is_taken(served: Served, media: str, body: bytes) -> None:
    response = await served.client.post(body, media=media)
    assert (response.code, response.document["accepted"]) == (200, 1)
    assert (response.document["fingerprints"] == [FINGERPRINT]) == ("senml" not in media)


async def test_the_words_of_the_query_are_those_of_coap(served: Served) -> None:
    response = await served.client.post(
        b'{"data":{"temperature":21.5}}', f"{POST}?d={DEVICE.replace(':', '%3A')}&id=17"
    )
    assert response.document["fingerprints"] == [FINGERPRINT]


async def test_a_device_that_names_nobody_is_its_address(served: Served) -> None:
    await served.client.post(b'{"id":1,"data":{"n":1}}')
    assert b'"device":"http://127.0.0.1"' in stored_events(served.store)[1].tail


async def test_a_pack_of_a_hundred_is_one_answer_and_one_commit(served: Served) -> None:
    pack = [{"device": DEVICE, "id": number, "data": {"n": number}} for number in range(100)]
    response = await served.client.post(json.dumps(pack).encode())
    commits = served.store.commit_durations.cumulative()[-1][1]
    stored = stored_events(served.store)[1:]
    assert (response.document["accepted"], len(set(response.document["fingerprints"])), commits) == (100, 100, 1)
    assert [event.fingerprint.hex() for event in stored] == response.document["fingerprints"]


UNKNOWN = ("", "text/plain", "application/x-www-form-urlencoded", "application/xml", "json")


@pytest.mark.parametrize(
    ("request_of", "code", "message"),
    [
        *(({"path": f"{POST}?{query}"}, 400, "query") for query in ("d", "d=a&d=b", "x=1", "d=%ff", "id=")),
        *(({"body": body}, 400, "") for body in (b"", b"{", b"[]", b"3", b'{"data":3}', b"\xff")),
        *(({"media": media}, 415, MEDIA_TYPES) for media in UNKNOWN),
        ({"fields": {"Content-Encoding": "gzip"}}, 415, "Content-Encoding"),
    ],
)
async def test_what_is_no_event_is_refused_with_the_reason(
    served: Served, request_of: dict[str, Any], code: int, message: str
) -> None:
    response = await served.client.post(**{"body": EVENT, **request_of})
    error = "undecodable" if code == 400 else "unknown format"
    assert (response.code, response.document["error"]) == (code, error)
    assert response.document["message"]
    assert message in response.document["message"]
    assert response.fields["Accept"] == (MEDIA_TYPES if message == MEDIA_TYPES else None)
    assert stored_events(served.store) == []


async def test_a_body_over_the_limit_is_refused_whether_its_length_is_said_or_not(tmp_path: Path) -> None:
    async with serving(tmp_path, max_body_bytes=1_000) as served:
        fits = await served.client.post(EVENT.ljust(1_000))
        output = await served.client.post(EVENT.ljust(1_000_000))
        async with Raw(served.server.port) as raw:
            raw.send(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" % POST.encode())
            raw.send(b"Transfer-Encoding: chunked\r\n\r\n" + b"400\r\n%s\r\n" % (b" " * 1024) * 9)
            chunked = await raw.receive()
    assert fits.code == 200
    assert (output.code, "1000 bytes" in output.document["message"]) == (413, True)
    assert (chunked.code, chunked.document) == (413, output.document)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (Status.UNDECODABLE, 400),
        (Status.UNAUTHENTICATED, 401),
        (Status.FORBIDDEN, 403),
        (Status.TOO_LARGE, 413),
        (Status.UNKNOWN_FORMAT, 415),
        (Status.UNAVAILABLE, 503),
    ],
)
async def test_each_outcome_has_its_code(tmp_path: Path, status: Status, code: int) -> None:
    def refuse(delivery: Delivery, respond: Respond) -> None:
        assert (delivery.media, delivery.via, delivery.relay) == (Media.JSON, "http", False)
        respond(Answer(status, reason="for a reason"))

    async with serving(tmp_path, receive=refuse) as served:
        response = await served.client.post(EVENT)
    assert (response.code, response.document) == (code, {"error": status.value, "message": "for a reason"})
    assert response.fields["Retry-After"] == ("1" if code == 503 else None)


async def test_a_webhook_that_is_repeated_is_one_event_by_its_mapping(served: Served) -> None:
    uplink = next(one for one in PUBLISHED if one.mapping == "the-things-stack-v3")
    path = f"{POST}?mapping={uplink.mapping}"
    answers = [await served.client.post(uplink.body.encode(), path) for _ in range(2)]
    skipped = await served.client.post(b'{"join_accept":{}}', path)
    unknown = await served.client.post(b"{}", f"{POST}?mapping=the-things")
    mixed = await served.client.post(b"{}", f"{path}&d=urn:dev:x")
    cbor = await served.client.post(b"\xa0", path, "application/cbor")
    wrong = await served.client.post(b'{"uplink_message":{}}', path)
    stored, metrics = stored_events(served.store), (await served.client.get("/metrics")).body.decode()
    assert [answer.document["accepted"] for answer in answers] == [1, 0]
    for outcome, number in (("event", 2), ("skipped", 1), ("rejected", 1)):
        labels = f'mapping="{uplink.mapping}",outcome="{outcome}",via="http"'
        assert f"oncegate_mapped_total{{{labels}}} {number}.0" in metrics
    assert (skipped.code, skipped.document["accepted"]) == (200, 0)
    assert [answer.code for answer in (unknown, mixed, wrong, cbor)] == [400, 400, 400, 415]
    assert "unknown mapping 'the-things'" in unknown.document["message"]
    assert "mapping the-things-stack-v3: device" in wrong.document["message"]
    assert b'"device":"urn:dev:mac:0004a30b001c0530"' in stored[1].tail


_FILE = files("agent.http").joinpath("openapi.json").read_bytes()
DESCRIPTION = json.loads(_FILE.replace(VIAS, ", ".join(map(json.dumps, limits())).encode()))
PATH = "/api/v1/openapi.json"
OF_THE_PAGE = {"/", "/page/"}
REQUIRED = {"getTrace": f"?fingerprint={FINGERPRINT}", "getDevice": "?device=urn:dev:mac:00158d0001a2b3c4"}
PACK = b'[{"device":"urn:b","id":1,"data":3},{"device":"urn:b","id":2,"data":{"x":1}}]'
READER = "r" * 40


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in DESCRIPTION["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def check(path: str, response: Response, method: str = "get") -> None:
    """Fail where a response is not as described."""
    described = DESCRIPTION["paths"][path.partition("?")[0]][method]["responses"][str(response.code)]
    if "$ref" in described:
        described = DESCRIPTION["components"]["responses"][described["$ref"].rpartition("/")[2]]
    media_type = response.fields["Content-Type"].partition(";")[0]
    schema = {**described["content"][media_type].get("schema", {}), "components": DESCRIPTION["components"]}
    if media_type == "application/json":
        Draft202012Validator(schema).validate(response.document)


async def test_the_description_is_served_to_everybody_and_names_every_path(tmp_path: Path) -> None:
    tokens = token_file(tmp_path, {"reader x": READER})
    async with serving(tmp_path, bind="0.0.0.0:0", token_file=tokens) as served:
        response = await served.client.get(PATH)
        paths = (await served.client.get("/none")).document["message"].removeprefix("there are ").split(", ")
        open_paths = {path for path, method, _ in operations() if (await served.client.get(path)).code == 200}
    assert (response.code, response.document, response.fields["Content-Type"]) == (200, DESCRIPTION, "application/json")
    assert set(DESCRIPTION["paths"]) == set(paths) - OF_THE_PAGE
    assert {path for path, _, operation in operations() if operation.get("security") == []} == open_paths


async def test_every_answer_is_as_described(served: Served) -> None:
    for body in (EVENT, EVENT, PACK, b"{"):
        check("/api/v1/events", await served.client.post(body), "post")
    check("/api/v1/events", await served.client.post(EVENT, media="text/plain"), "post")
    for path, method, operation in operations():
        required = REQUIRED.get(operation["operationId"], "")
        if method == "get":
            response = await served.client.get(path + required)
            assert response.code == 200
            check(path, response)
    for path in (
        "/api/v1/rejected?limit=0",
        "/api/v1/trace?fingerprint=x",
        "/api/v1/live?after=x",
        "/api/v1/device",
    ):
        response = await served.client.get(path)
        assert response.code == 400
        check(path, response)


async def test_lanes_are_as_described(tmp_path: Path) -> None:
    async with serving(tmp_path, lanes=[Lane("alarms", 10, type="alarm")]) as served:
        served.lane_links["alarms"].report(LinkName.KAFKA, UNREACHABLE, "refused")
        for path in ("/api/v1/live", "/api/v1/status"):
            response = await served.client.get(path)
            check(path, response)
            found = response.document["lanes"]
            described = DESCRIPTION["components"]["schemas"]["Live" if path.endswith("live") else "Status"]
            lane = found[0] if isinstance(found, list) else found["alarms"]
            of_lane = described["properties"]["lanes"]
            assert set(lane) == set(of_lane.get("items", of_lane.get("additionalProperties"))["properties"])
