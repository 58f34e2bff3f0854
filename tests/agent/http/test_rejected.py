"""Rejected events over HTTP: for readers only, selected, newest first."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from agent.config.settings import DevicesSettings
from agent.store.port import Reject
from agent.store.read.rejected import RejectSelection
from tests.agent.http.serving import Served, serving

BEFORE, AFTER = b'[{"device":"urn:good","id":1},', b"]"
NOT_A_MAP, UNKNOWN_FIELD = b'{"device":"urn:a","id":1,"data":3}', '{"device":"urn:ü","id":1,"colour":"red"}'.encode()
DENIED = b'{"device":"urn:denied","id":1}'
PATH = "/api/v1/rejected"
LONG = f"device={'*a' * 129}"
READER, DEVICE = "r" * 40, "d" * 40


async def fill(served: Served) -> None:
    for event in (NOT_A_MAP, UNKNOWN_FIELD, DENIED):
        assert (await served.client.post(BEFORE + event + AFTER)).document["rejected"] == 1


async def ask(served: Served, query: str) -> list[dict[str, Any]]:
    response = await served.client.get(f"{PATH}?{query}")
    assert response.code == 200, response.body
    found: list[dict[str, Any]] = response.document
    return found


async def test_they_have_reason_and_bytes_and_are_selected(tmp_path: Path) -> None:
    async with serving(tmp_path, devices=DevicesSettings(deny=("urn:denied",))) as served:
        await fill(served)
        everything = await ask(served, "")
        assert [one["number"] for one in everything] == [3, 2, 1]
        assert [bytes.fromhex(one["raw"]) for one in everything] == [b"", UNKNOWN_FIELD, NOT_A_MAP]
        assert everything[1]["reason"] == "unknown field 'colour'"
        assert (everything[2]["device"], everything[2]["via"]) == ("urn:a", "http")
        for query, numbers in (
            ("via=http&limit=2", [3, 2]),
            ("via=coap", []),
            ("device=urn:%3F", [2, 1]),
            ("device=urn:u%CC%88", [2]),
            ("reason=UNKNOWN%20field", [2]),
            ("reason=allow", [3]),
            ("before=3", [2, 1]),
            ("before=3&limit=1", [2]),
        ):
            assert [one["number"] for one in await ask(served, query)] == numbers, query


@pytest.mark.parametrize("query", ["via=smoke", "limit=0", "limit=1001", "limit=x", "before=-1", "limt=3", LONG])
async def test_a_wrong_query_is_refused_and_names_the_word(query: str, tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        response = await served.client.get(f"{PATH}?{query}")
    assert response.code == 400
    assert response.document["message"].startswith(query.partition("=")[0] + ": ")


@pytest.mark.guarantee(6)
def test_patterns_that_clients_choose_take_bounded_memory() -> None:
    rejects = [(1, Reject("urn:a", "http", 0, "a reason", b""))]

    def select(first: int, last: int) -> int:
        for number in range(first, last):
            assert not RejectSelection(device=f"{number:0256}").select(rejects)
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = select(0, 1_000)
        assert select(1_000, 1_500) - before < 1 << 20
    finally:
        tracemalloc.stop()
