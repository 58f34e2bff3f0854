"""The status page: its files, its permissions, and the data that it shows."""

import logging
import re
from importlib.resources import files
from pathlib import Path

from agent.http.page import POLICY
from agent.store.port import Candidate, Outcome
from agent.telemetry.activity import DEVICES_MAX, FEED_MAX, TAIL_BYTES_MAX, Activity
from agent.telemetry.process_state import CHARACTERS_MAX, ERRORS_MAX, RecentErrors
from contract.event import Event
from contract.record import ClockTrust, SharedDay
from tests.agent.http.serving import EVENT, FINGERPRINT, Served

DEVICE = "urn:dev:mac:00158d0001a2b3c4"
FILES = files("agent.http.page_files")
PATHS = ("/", *(f"/page/{file.name}" for file in FILES.iterdir() if Path(file.name).suffix in (".css", ".js", ".svg")))


async def test_the_page_needs_nothing_from_elsewhere_and_may_run_nothing_else(served: Served) -> None:
    for path in PATHS:
        response = await served.client.get(path)
        assert (response.code, response.fields["Content-Security-Policy"]) == (200, POLICY)
        assert response.fields["X-Content-Type-Options"] == "nosniff"
    assert "unsafe" not in POLICY
    assert POLICY.startswith("default-src 'none'")
    for file in FILES.iterdir():
        if not file.name.startswith("__"):
            links = re.findall(r"https?://[^\s\"']+", file.read_text())
            assert [link for link in links if not link.startswith("http://www.w3.org/")] == []
    page = FILES.joinpath("index.html").read_text()
    assert not re.search(r"\son\w+=|style=|<style|<script>", page)


def test_the_page_never_makes_markup_of_text() -> None:
    for file in FILES.iterdir():
        if Path(file.name).suffix in (".js", ".css", ".html"):
            text = file.read_text()
            assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text)


async def test_the_live_view_has_devices_outcomes_and_what_is_new_since(served: Served) -> None:
    await served.client.post(EVENT)
    await served.client.post(EVENT)
    await served.client.post(b'[{"device":"urn:b","id":1,"data":3},{"device":"urn:b","id":2}]')
    await served.client.post(b"{")
    live = (await served.client.get("/api/v1/live?after=0")).document
    later = (await served.client.get("/api/v1/live?after=2")).document
    wrong = await served.client.get("/api/v1/live?after=x")
    feed = [(entry["outcome"], entry["device"], entry["fingerprint"]) for entry in live["feed"]]
    assert feed[:2] == [("accepted", DEVICE, FINGERPRINT), ("duplicate", DEVICE, FINGERPRINT)]
    assert sorted(outcome for outcome, _, _ in feed[2:]) == ["accepted", "refused", "rejected"]
    assert [entry["number"] for entry in later["feed"]] == [3, 4, 5]
    assert [entry.get("data") for entry in live["feed"][:2]] == [{"temperature": 21.5}, None]
    devices = {one["device"]: one for one in live["devices"]}
    assert (devices[DEVICE]["data"], "tail" in devices[DEVICE]) == ({"temperature": 21.5}, False)
    assert (devices[DEVICE]["events"], devices[DEVICE]["duplicates"]) == (1, 1)
    assert devices["urn:b"]["rejected"] == 1
    assert "data" in devices["urn:b"]["reason"]
    assert (live["clock"], live["trouble"], live["status"]["accepted"]) == ("trusted", "", 2)
    assert wrong.code == 400


async def test_long_values_are_not_held_for_the_page(served: Served) -> None:
    await served.client.post(b'{"device":"urn:a","id":1,"data":{"x":"%s"}}' % (b"x" * TAIL_BYTES_MAX))
    live = (await served.client.get("/api/v1/live?after=0")).document
    assert ("data" in live["feed"][0], "data" in live["devices"][0]) == (False, False)


async def test_an_event_is_found_by_fingerprint_and_by_device(served: Served) -> None:
    await served.client.post(EVENT)
    (trace,) = (await served.client.get(f"/api/v1/trace?fingerprint={FINGERPRINT}")).document
    latest = (await served.client.get("/api/v1/latest?device=A2B3C4")).document
    nothing = await served.client.get(f"/api/v1/trace?fingerprint={'0' * 32}")
    wrong = await served.client.get("/api/v1/trace?fingerprint=xyz")
    assert (trace["state"], trace["event"]["device"]) == ("new", DEVICE)
    assert [event["fingerprint"] for event in latest] == [FINGERPRINT]
    assert (nothing.document, wrong.code) == ([], 400)


async def test_what_is_watched_is_bounded(served: Served) -> None:
    pack = b"[%s]" % b",".join(b'{"device":"urn:%d","id":1}' % number for number in range(500))
    for turn in range(DEVICES_MAX // 500 + 1):
        await served.client.post(pack.replace(b'"urn:', b'"urn:%d:' % turn))
    live = (await served.client.get("/api/v1/live?after=0")).document
    assert len(live["feed"]) == FEED_MAX
    assert live["devices"][0]["device"] == f"urn:{DEVICES_MAX // 500}:499"


def test_the_latest_warnings_are_kept() -> None:
    words = RecentErrors()
    for number in range(ERRORS_MAX + 5):
        words.emit(logging.LogRecord("agent.x", logging.WARNING, "x.py", 1, "full=%d", (number,), None))
    assert [error["message"] for error in words.errors()] == [f"full={number}" for number in range(5, ERRORS_MAX + 5)]
    assert words.errors()[-1]["fields"] == {"full": str(ERRORS_MAX + 4)}


def test_a_warning_has_its_values_whatever_a_sender_has_written_in_them() -> None:
    words = RecentErrors()
    device, long = "urn:a' reason='<b>", "x" * 100_000
    message = "identity=%s device=%r reason=%r"
    words.emit(logging.LogRecord("agent.x", logging.WARNING, "x.py", 1, message, ("early", device, long), None))
    (error,) = words.errors()
    assert error["fields"] == {"identity": "early", "device": device, "reason": long[:CHARACTERS_MAX]}
    assert len(str(error["message"])) == CHARACTERS_MAX


def test_a_large_pack_of_suspects_costs_a_look_at_each() -> None:
    compared = 0

    class Counted(bytes):
        __hash__ = bytes.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return bytes.__eq__(self, other)

    events = [Candidate(Event("urn:a"), None, b"", 0, ClockTrust.TRUSTED, SharedDay.LABEL, 0)] * 300
    prints = [number.to_bytes(16, "big") for number in range(300)]
    outcome = Outcome(300, 0, tuple(map(Counted, prints)), (True,) * 300, tuple(map(Counted, prints)))
    watch = Activity()
    watch.stored("coap", events, [], outcome)
    (seen,) = watch.devices()
    assert seen["possible_duplicates"] == 300
    assert compared < 3_000
