"""The view of one device: its latest events, their duplicates, missing ids and warnings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from agent.decode.event_map import DEVICE_CHARACTERS_MAX
from agent.store.read.documents import DEVICE_EVENTS_MAX, DEVICE_TAIL_BYTES_MAX, MissingIds, missing_ids
from tests.agent.http.serving import Served, serving

DEVICE = "urn:dev:ops:*[x]"
PATH = "/api/v1/device?device="


async def send(served: Served, *ids: int, device: str = DEVICE, **fields: object) -> None:
    body = [{"device": device, "id": id_, "data": {"t": id_}, **fields} for id_ in ids]
    assert (await served.client.post(json.dumps(body).encode())).code == 200


async def ask(served: Served, device: str = DEVICE) -> dict[str, Any]:
    response = await served.client.get(PATH + quote(device))
    assert response.code == 200, response.body
    found: dict[str, Any] = response.document
    return found


async def test_it_has_the_events_of_this_device_only_with_duplicates_and_missing_ids(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await send(served, 1, 2, 5)
        await send(served, 2)
        await send(served, 3, device="urn:dev:ops:y[x]")  # which DEVICE would match as a pattern
        found = await ask(served)
    assert [(event["id"], event["data"], event["state"]) for event in found["events"]] == [
        (1, {"t": 1}, "new"),
        (2, {"t": 2}, "new"),
        (5, {"t": 5}, "new"),
    ]
    (duplicate,) = found["duplicates"]
    assert duplicate == {"received": served.clock.now, "fingerprint": found["events"][1]["fingerprint"]}
    assert found["missing_ids"] == [{"boot": None, "first": 3, "last": 4}]
    assert (found["activity"]["events"], found["activity"]["duplicates"]) == (3, 1)
    assert found["warnings"] == {}


async def test_it_has_what_endangers_the_identity_and_what_to_do(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await send(served, 7, time=1_767_225_600)
        await send(served, 8, 3)
        await send(served, 2)
        found = await ask(served)
    assert list(found["warnings"]) == ["backwards", "time-before-2000"]
    assert "send `boot` or `time`" in found["warnings"]["backwards"]


async def test_a_device_that_was_never_heard_has_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        found = await ask(served, "urn:none")
    assert (found["events"], found["duplicates"], found["missing_ids"], found["activity"]) == ([], [], [], None)


async def test_the_list_is_bounded_and_has_no_long_data(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await send(served, 1, data={"x": "x" * DEVICE_TAIL_BYTES_MAX})
        assert [event["data"] for event in (await ask(served))["events"]] == [None]
        await send(served, *range(2, DEVICE_EVENTS_MAX + 50))
        events = (await ask(served))["events"]
    assert [event["id"] for event in events] == list(range(50, DEVICE_EVENTS_MAX + 50))


@pytest.mark.parametrize("device", ["", "x" * (DEVICE_CHARACTERS_MAX + 1)])
async def test_a_name_that_no_device_can_have_is_refused(device: str, tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        assert (await served.client.get(PATH + device)).code == 400


def test_missing_ids_are_those_of_each_boot_and_of_counters_only() -> None:
    def events(boot: object, *ids: object) -> list[dict[str, object]]:
        return [{"id": id_} if boot is None else {"id": id_, "boot": boot} for id_ in ids]

    assert missing_ids(events(None, 4, 1, 2)) == [MissingIds(None, 3, 3)]
    assert missing_ids(events(1, 1, 2, 3) + events(2, 1, 3)) == [MissingIds(2, 2, 2)]
    assert missing_ids(events(None, 1, 5, 9)) == []
    assert missing_ids(events(None, 1_767_225_600, 1_767_225_660)) == []
    assert missing_ids(events(None, "1", "3")) == []
    assert missing_ids([{"state": "damaged"}, {"id": 7}]) == []
