"""The description of the interface (OpenAPI) agrees with the server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from agent.config.lanes import Lane
from agent.config.ways import limits
from agent.forward.kafka.health import UNREACHABLE
from agent.http.page import VIAS
from agent.telemetry.links import LinkName
from tests.agent.http.client import Response
from tests.agent.http.serving import EVENT, FINGERPRINT, serving, token_file

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


async def test_every_answer_is_as_described(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
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
