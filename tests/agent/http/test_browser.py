"""The status page in a real browser: on three widths, light and dark, with and without tokens, examined by axe."""

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.config.lanes import Lane
from agent.forward.errors import UnreachableError
from agent.forward.kafka.health import UNREACHABLE, TopicLink
from agent.telemetry.history import TICK_SECONDS
from agent.telemetry.links import LinkName
from tests.agent.http.serving import EVENT, FINGERPRINT, Served, serving, token_file
from tests.support import browser

DEVICE = "urn:dev:mac:00158d0001a2b3c4"
HOSTILE = "urn:b:<img src=x onerror=alert(1)>\u202egpj.exe"
POINTS = 30
LANES = Path(__file__).with_name("lanes.js")
TOKEN, POSTING = "r" * 40, "d" * 40


async def fill(served: Served, token: str) -> None:
    """Accept, recognise and reject events for some time, then lose Kafka."""
    for _ in range(2):
        await served.client.post(EVENT, token=token)
    pack = [
        {"device": HOSTILE, "id": 1, "data": {"x": 3, "a": [{"toString": 1}], "constructor": 4}},
        {"device": "urn:b", "id": 2, "data": 7},
        {"device": "\ud800"},
    ]
    await served.client.post(json.dumps(pack).encode(), token=token)
    later = [{"device": DEVICE, "id": id_, "data": {"temperature": id_}} for id_ in (18, 19, 21)]
    await served.client.post(json.dumps(later).encode(), token=token)
    served.links.report(LinkName.KAFKA, UNREACHABLE, "kafka.example.org:9092: Connection refused")
    for _ in range(POINTS):
        served.clock.pass_seconds(TICK_SECONDS)
        served.history.sample()
    await served.client.post(b"{", token=token)


async def look(tmp_path: Path, width: int, scheme: str, token: str = "", **settings: Any) -> Mapping[str, Any]:
    folder = os.environ.get("ONCEGATE_SCREENSHOTS", str(tmp_path))
    posting = POSTING if token else ""
    async with serving(tmp_path, **settings) as served:
        await fill(served, posting)
        given = {
            "url": f"http://127.0.0.1:{served.client.port}/",
            "device": DEVICE,
            "fingerprint": FINGERPRINT,
            "folder": folder,
            "width": width,
            "scheme": scheme,
            "token": token,
            "posting": posting,
        }
        seen: Mapping[str, Any] = await asyncio.to_thread(browser.run, Path(__file__).with_name("page.js"), given)
    return seen


def check(seen: Mapping[str, Any]) -> None:
    """Fail where the page has not shown what it must, or has done more."""
    texts = seen["texts"]
    assert (seen["errors"], seen["elsewhere"], seen["wide"], seen["injected"]) == ([], [], [], 0), seen
    assert (seen["axe"], seen["passes"] > 10) == ([], True)
    # The state, the broken link, and what to do.
    assert "Accepting events" in texts["state"]
    ((broken, colour),) = seen["broken"]
    assert "✗ unreachable for 2 min 30 s" in broken
    assert colour == ("rgb(161, 22, 22)" if seen["scheme"] == "light" else "rgb(255, 170, 163)")
    for text in ("Kafka is unreachable", "Connection refused", "What to do:", "oncegate doctor", "refused since"):
        assert text in texts["conditions"]
    # Figures with charts, which a reload keeps.
    assert seen["drawn"][:3] == seen["drawnAfterReload"][:3] == [POINTS] * 3
    for text in ("5 events in total", "2 min 30 s old", "highest", "synchronised"):
        assert text in texts["tiles"]
    # Devices and events with values; a hostile name is shortened, and shown as text.
    assert DEVICE in texts["devices"]
    assert "temperature" in texts["devices"]
    assert "data: data is not a map" in texts["devices"]
    assert "urn:b:<img src=x onerror=alert(" in texts["live"]
    assert "\u202e" not in texts["live"]
    assert '[{"toString":1}] constructor 4' in texts["live"].replace("\n", " ")
    assert "= duplicate" in texts["live"]
    assert "✗ rejected" in texts["live"]
    assert (seen["copied"], len(seen["filtered"])) == (FINGERPRINT, 1)
    assert "No event matches" in seen["nothing"]
    assert seen["addedWhilePaused"] == 0
    assert seen["columns"][0] == seen["columns"][1]
    # The pages of an event, a device, and the rejected events.
    for text in ("Received", "On disk", "not yet", "1 duplicate was acknowledged", "21.5", "Path"):
        assert text in texts["event"], text
    assert "temperature: 4 values from 18 to 21.5" in seen["deviceCharts"]
    for text in (DEVICE, "Missing ids", "20", "Duplicates", "stored"):
        assert text in texts["device"], text
    assert DEVICE in texts["found"]
    assert "data: data is not a map" in texts["rejected"]
    (rejected,) = map(json.loads, seen["downloaded"].splitlines())
    assert json.loads(bytes.fromhex(rejected["raw"]))["data"] == 7
    assert not seen["outdated"], "the page was just read"
    assert "since the agent started" in texts["device"]
    # A wrong time of the device stretches no chart, and the button for the latest state moves nothing aside.
    assert seen["widths"][0] == seen["widths"][1]
    assert seen["axes"]
    assert not any("1970" in text for text in seen["axes"])
    # Without an agent.
    gone, colour = seen["gone"]
    assert "Agent not responding since" in gone
    assert (colour, seen["dimmed"]) == ("rgb(161, 22, 22)", "grayscale(1)")


@pytest.mark.heavy
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 768, 390])
async def test_the_page_works_in_a_browser_for_everybody(tmp_path: Path, width: int, scheme: str) -> None:
    check(await look(tmp_path, width, scheme))


@pytest.mark.heavy
async def test_the_page_works_in_a_browser_with_a_reader_token(tmp_path: Path) -> None:
    tokens = token_file(tmp_path, {"reader browser": TOKEN, "relay urn:r": POSTING})
    check(await look(tmp_path, 1280, "light", TOKEN, bind="0.0.0.0:0", token_file=tokens))


@pytest.mark.heavy
@pytest.mark.parametrize("width", [1280, 390])
async def test_the_page_lists_the_lanes_and_a_link_that_is_broken_in_one_of_them(tmp_path: Path, width: int) -> None:
    given = {"folder": os.environ.get("ONCEGATE_SCREENSHOTS", str(tmp_path)), "width": width}

    async def look_at(served: Served, name: str) -> Mapping[str, Any]:
        url = f"http://127.0.0.1:{served.client.port}/"
        seen: Mapping[str, Any] = await asyncio.to_thread(browser.run, LANES, {**given, "url": url, "name": name})
        assert (seen["errors"], seen["axe"], seen["wide"]) == ([], [], False)
        return seen

    async with serving(tmp_path / "without") as served:
        TopicLink(served.links, "").report_reachable()
        without = await look_at(served, "without")
    long = "l" * 32
    async with serving(tmp_path / "with", lanes=[Lane("alarms", 10, type="alarm"), Lane(long, -3, type="x")]) as served:
        links = {name: TopicLink(found, "") for name, found in served.lane_links.items()}
        for link in links.values():
            link.report_reachable()
        await served.client.post(b'{"device":"urn:alarm:1","type":"alarm","id":1}')
        served.clock.pass_seconds(90)
        fine = await look_at(served, "fine")
        links["alarms"].report_failure(UnreachableError("kafka.example.org:9092: Connection refused"))
        served.clock.pass_seconds(150)
        broken = await look_at(served, "broken")
        for link in links.values():
            link.report_failure(UnreachableError("kafka.example.org:9092: Connection refused"))
        everywhere = await look_at(served, "everywhere")
    assert (without["lanes"], "✓ Accepting" in without["state"]) == ([], True)
    assert fine["lanes"] == [
        ["alarms", "priority 10", "2 events waiting, oldest 1 min ago", "✓ connected"],
        ["default", "priority 0", "no event waiting", "✓ connected"],
        [long, "priority -3", "no event waiting", "✓ connected"],
    ]
    assert (fine["broken"], "✓ Accepting" in fine["state"]) == ([], True)
    assert [lane[3] for lane in broken["lanes"]] == ["✗ Kafka unreachable for 2 min 30 s", "✓ connected", "✓ connected"]
    assert (len(broken["broken"]), "! Accepting" in broken["state"]) == (1, True)
    assert "✗ unreachable for 2 min 30 s" in broken["broken"][0]
    for text in ("Kafka is unreachable, for 2 min 30 s", "lane alarms: kafka.example.org:9092: Connection refused"):
        assert text in broken["conditions"]
    assert everywhere["conditions"].count("Kafka is unreachable") == 1, "an outage of all lanes is one condition"
    assert all("✗ Kafka unreachable" in lane[3] for lane in everywhere["lanes"])
