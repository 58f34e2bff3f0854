"""The views of the gateway's state."""

import asyncio
import json
import math
import threading
import tracemalloc
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agent.config.lanes import Lane
from agent.config.settings import DevicesSettings
from agent.decode.event_map import DEVICE_CHARACTERS_MAX
from agent.forward.kafka.health import REACHABLE, UNREACHABLE
from agent.forward.kafka.uplink import Uplink
from agent.http.response import Refusal
from agent.http.views import CachedView, Searches
from agent.status import read_status
from agent.store.errors import StoreError
from agent.store.facts import FORWARDER_STOPPED
from agent.store.port import Reject
from agent.store.read.documents import (
    DEVICE_EVENTS_MAX,
    DEVICE_TAIL_BYTES_MAX,
    RejectSelection,
    missing_ids,
)
from agent.telemetry.history import TICK_SECONDS
from agent.telemetry.links import LinkName
from contract.timestamp import rfc3339
from tests.agent.http.serving import EVENT, FINGERPRINT, Served, serving
from tests.agent.store.stores import GATEWAY, START, Faulty, HandClock, batch, mark_processed

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(text: bytes) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


@pytest.fixture
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each request see the state of its moment."""
    monkeypatch.setattr("agent.http.views.FRESH_SECONDS", 0.0)


@pytest.mark.usefixtures("_fresh")
async def test_a_store_that_cannot_write_is_not_ready_until_it_can(tmp_path: Path, faulty: Faulty) -> None:
    async with serving(tmp_path, connect=faulty.connect) as served:
        faulty.fault = "COMMIT"
        assert (await served.client.post(EVENT)).code == 503
        failing = await served.client.get("/readyz")
        faulty.fault = ""
        recovered = await served.client.get("/readyz")
    assert (failing.code, failing.document["message"]) == (503, "the store cannot write")
    assert int(failing.fields["Retry-After"]) > 0
    assert recovered.code == 200


async def test_the_status_is_that_of_the_command(served: Served, tmp_path: Path) -> None:
    await served.client.post(EVENT)
    response = await served.client.get("/api/v1/status")
    found = response.document
    assert (found["requests"]["requests"], found["requests"]["refused"]) == (1, 0)
    assert {**found, "requests": None} == read_status(tmp_path / "state", GATEWAY).document()
    assert (response.document["accepted"], response.document["events"]["new"]) == (1, 2)


async def test_the_metrics_are_those_of_the_events(served: Served) -> None:
    await served.client.post(EVENT)
    await served.client.post(EVENT)
    await served.client.post(EVENT.replace(b"17", b"17,1"))
    await served.client.post(b'[{"device":"urn:b","id":1,"data":3},{"device":"urn:b","id":2}]')
    await served.client.post(b"{")
    served.store.outbox.mark_forwarded(batch(1, 2))
    response = await served.client.get("/metrics")
    assert response.fields["Content-Type"].startswith("text/plain; version=")
    found = samples(response.body)
    assert {name.partition("_")[0] for name, _ in found} == {"oncegate"}
    for name, labels, value in (
        ("events_accepted_total", {"via": "http"}, 2),
        ("events_accepted_total", {"via": "coap"}, 0),
        ("events_duplicates_total", {"via": "http"}, 1),
        ("events_duplicates_total", {"via": "coap"}, 5),
        ("events_rejected_total", {"via": "http", "reason": "invalid"}, 1),
        ("acks_total", {"via": "http"}, 3),
        ("store_max_bytes", {}, 1 << 30),
        ("clock_trusted", {}, 1),
        ("oldest_unprocessed_seconds", {}, 0),
        ("deliveries_refused_total", {"via": "http", "reason": "undecodable"}, 2),
        ("messages_unserved_total", {"via": "coap", "reason": "shed"}, 7),
        ("messages_unserved_total", {"via": "coap", "reason": "replayed"}, 8),
        ("http_responses_total", {"code": "200"}, 3),
        ("http_responses_total", {"code": "400"}, 2),
        ("outbox_events", {"state": "new"}, 1),
        ("outbox_events", {"state": "forwarded"}, 2),
        ("outbox_events", {"state": "processed"}, 0),
        ("commit_seconds_bucket", {"le": "+Inf"}, 2),
        ("commit_seconds_count", {}, 2),
    ):
        assert found[f"oncegate_{name}", tuple(sorted(labels.items()))] == value, name
    assert found["oncegate_commit_seconds_sum", ()] > 0
    assert found["oncegate_store_bytes", ()] > found["oncegate_store_log_bytes", ()] > 4_096
    assert found["oncegate_process_resident_memory_bytes", ()] > 0
    assert b"urn:" not in response.body


@pytest.mark.usefixtures("_fresh")
async def test_silent_devices_are_counted_from_a_day_on_until_a_week(tmp_path: Path) -> None:
    silent = []
    async with serving(tmp_path) as served:
        await served.client.post(EVENT)
        for days in (0, 1, 5, 1):
            served.clock.pass_seconds(86_400 * days)
            found = samples((await served.client.get("/metrics")).body)
            silent.append(found["oncegate_devices_silent", ()])
        assert found["oncegate_disk_free_bytes", ()] > 0
    assert silent == [0, 1, 1, 0]


@pytest.mark.guarantee(3)
@pytest.mark.parametrize(("bytes_max", "accepts"), [(1 << 30, 1), (1, 0)])
async def test_a_store_that_takes_nothing_is_not_ready_and_a_metric(
    bytes_max: int, accepts: int, tmp_path: Path
) -> None:
    async with serving(tmp_path, store={"max_bytes": bytes_max}, lanes=[Lane("empty", 1)]) as served:
        await served.client.post(EVENT)
        found = samples((await served.client.get("/metrics")).body)
        ready = await served.client.get("/readyz")
    assert (ready.code, b"full" in ready.body) == ((200, False) if accepts else (503, True))
    assert found["oncegate_accepting", ()] == accepts
    assert (found["oncegate_store_fill_ratio", ()] > 1) == (not accepts)


@pytest.mark.usefixtures("_fresh")
async def test_forwarding_that_has_stopped_is_a_metric_of_its_own(tmp_path: Path) -> None:
    values = []
    async with serving(tmp_path) as served:
        for reason in ("", "another agent has taken over", ""):
            served.store.outbox.set_fact(FORWARDER_STOPPED, reason)
            found = samples((await served.client.get("/metrics")).body)
            values.append(found["oncegate_forwarding_stopped", ()])
    assert values == [0, 1, 0]


@pytest.mark.guarantee(4)
@pytest.mark.usefixtures("_fresh")
async def test_a_capped_uplink_shows_what_waits_and_when_it_will_be_sent(tmp_path: Path) -> None:
    uplink = Uplink(1_000, HandClock())
    report = uplink.statistics("")["stats_cb"]
    async with serving(tmp_path, uplink=uplink) as served:
        await served.client.post(EVENT)
        unknown = samples((await served.client.get("/metrics")).body)
        uplink.hand_over(2, 400, "")
        report('{"brokers":{"b":{"txbytes":500}},"txmsgs":2,"msg_cnt":0}')
        known = samples((await served.client.get("/metrics")).body)
        live = (await served.client.get("/api/v1/live?after=0")).document
    assert math.isnan(unknown["oncegate_uplink_seconds_left", ()])
    assert known["oncegate_uplink_max_bytes_per_second", ()] == 1_000
    assert known["oncegate_uplink_sent_bytes_total", ()] == 500
    assert known["oncegate_uplink_seconds_left", ()] == 0.5, "two events, with the one that begins the epoch"
    assert live["uplink"] == {
        "bytes_per_second_max": 1_000,
        "sent_bytes": 500,
        "bytes_per_event": 250.0,
        "waiting": 2,
        "seconds_left": 0.5,
    }


async def test_the_history_has_what_has_happened_since_the_start(served: Served) -> None:
    for number in range(10):
        await served.client.post(b'{"device":"urn:a","id":%d}' % number)
    mark_processed(served.store, 1, 4)
    served.store.outbox.mark_forwarded(batch(5, 6))
    served.clock.pass_seconds(TICK_SECONDS)
    served.history.sample()
    shown = (await served.client.get("/api/v1/history")).document
    day = (await served.client.get("/api/v1/history?span=24h")).document
    wrong = await served.client.get("/api/v1/history?span=1y")
    (ack_ms,) = shown.pop("ack_ms")
    assert ack_ms > 0
    assert shown == {
        "end": served.clock.now,
        "step_seconds": TICK_SECONDS,
        "points_max": 180,
        "accepted": [10 / TICK_SECONDS],
        "sent": [6 / TICK_SECONDS],
        "confirmed": [4 / TICK_SECONDS],
        "new": [5],  # one of them is the gateway's own
        "forwarded": [2],
    }
    assert (day["step_seconds"] * day["points_max"], day["accepted"]) == (86_400, [])
    assert (wrong.code, wrong.document["message"]) == (400, "span: expected one of 15min, 24h")


async def test_a_trace_has_the_times_of_forwarding_and_confirmation(served: Served) -> None:
    path, begun = f"/api/v1/trace?fingerprint={FINGERPRINT}", START
    await served.client.post(EVENT)
    outbox = served.store.outbox

    async def times() -> tuple[str | None, str | None]:
        served.clock.pass_seconds(1)
        (trace,) = (await served.client.get(path)).document
        return trace.get("forwarded"), trace.get("processed")

    assert await times() == (None, None)
    outbox.mark_forwarded(batch(1, 2))
    assert await times() == (rfc3339(begun + 1_000), None)
    outbox.return_batches(outbox.forwarded())
    assert await times() == (None, None)
    outbox.mark_forwarded(batch(1, 2, offset=7))
    assert await times() == (rfc3339(begun + 3_000), None)
    outbox.mark_processed(outbox.forwarded())
    assert await times() == (rfc3339(begun + 3_000), rfc3339(begun + 4_000))


class Look:
    """Lasts until it may go on; counts how many have begun, and how many at once."""

    def __init__(self) -> None:
        self.begun = self.at_once = self.most = 0
        self.go_on = threading.Event()
        self._guard = threading.Lock()

    def __call__(self) -> int:
        with self._guard:
            self.begun, self.at_once = self.begun + 1, self.at_once + 1
            self.most = max(self.most, self.at_once)
        self.go_on.wait(60)
        with self._guard:
            self.at_once -= 1
        return self.begun


async def test_many_who_ask_at_once_cost_one_look() -> None:
    look = Look()
    recent = CachedView(look)
    asked = [asyncio.create_task(recent.get()) for _ in range(50)]
    await asyncio.sleep(0)
    look.go_on.set()
    assert await asyncio.gather(*asked) == [1] * 50
    assert await recent.get() == 1


@pytest.mark.parametrize("hangs", [True, False])
async def test_a_look_that_fails_or_takes_too_long_is_a_503(hangs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.http.views.VIEW_SECONDS_MAX", 0.05 if hangs else 10.0)
    over = threading.Event()

    def look() -> int:
        if hangs:
            over.wait(10)
            return 1
        raise StoreError("there is no store yet")

    with pytest.raises(Refusal) as refused:
        await CachedView(look).get()
    over.set()
    assert refused.value.response.code == 503
    assert (b"too long" if hangs else b"no store") in refused.value.response.body


async def test_searches_come_one_after_the_other_and_leave_the_threads_to_the_rest() -> None:
    look, searches, ready = Look(), Searches(), CachedView(lambda: 2)
    asked = [asyncio.create_task(searches.get(look)) for _ in range(50)]
    assert await ready.get() == 2
    look.go_on.set()
    assert await asyncio.gather(*asked) == list(range(1, 51))
    assert look.most == 1


async def test_a_search_that_nobody_waits_for_any_more_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.http.views.VIEW_SECONDS_MAX", 0.05)
    look, searches = Look(), Searches()
    refused = await asyncio.gather(*(searches.get(look) for _ in range(5)), return_exceptions=True)
    assert all(isinstance(one, Refusal) for one in refused)
    assert look.begun == 1
    look.go_on.set()
    monkeypatch.setattr("agent.http.views.VIEW_SECONDS_MAX", 60.0)
    assert await searches.get(look) == 2


LANES = (Lane("bulk", -1, type="spectrum"), Lane("alarms", 10, type="alarm*"))
ALARM = b'{"device":"urn:alarm:1","type":"alarm","id":1}'


async def test_the_live_view_has_each_lane_with_what_waits_and_its_links(tmp_path: Path) -> None:
    async with serving(tmp_path, lanes=LANES) as served:
        served.clock.pass_seconds(60)
        await served.client.post(ALARM)
        served.links.report(LinkName.KAFKA, REACHABLE)
        served.links.report(LinkName.MQTT, REACHABLE)
        served.lane_links["alarms"].report(LinkName.KAFKA, UNREACHABLE, "refused")
        live = (await served.client.get("/api/v1/live?after=0")).document
    assert [(lane["name"], lane["priority"], lane["new"]) for lane in live["lanes"]] == [
        ("alarms", 10, 2),  # with the event that begins its epoch
        ("default", 0, 0),
        ("bulk", -1, 0),
    ]
    assert [lane["oldest_new"] for lane in live["lanes"]] == [START + 60_000, None, None]
    states = {lane["name"]: {name: link["state"] for name, link in lane["links"].items()} for lane in live["lanes"]}
    assert states == {"alarms": {"kafka": "unreachable"}, "default": {"kafka": "reachable"}, "bulk": {}}
    assert live["links"]["kafka"]["state"] == "unreachable"
    assert live["links"]["kafka"]["reason"] == "lane alarms: refused"


ASKED_DEVICE = "urn:dev:ops:*[x]"
DEVICE_PATH = "/api/v1/device?device="


async def send_events(served: Served, *ids: int, device: str = ASKED_DEVICE, **fields: object) -> None:
    body = [{"device": device, "id": id_, "data": {"t": id_}, **fields} for id_ in ids]
    assert (await served.client.post(json.dumps(body).encode())).code == 200


async def ask_device(served: Served, device: str = ASKED_DEVICE) -> dict[str, Any]:
    response = await served.client.get(DEVICE_PATH + quote(device))
    assert response.code == 200, response.body
    found: dict[str, Any] = response.document
    return found


async def test_it_has_the_events_of_this_device_only_with_duplicates_and_missing_ids(served: Served) -> None:
    await send_events(served, 1, 2, 5)
    await send_events(served, 2)
    await send_events(served, 3, device="urn:dev:ops:y[x]")  # which ASKED_DEVICE would match as a pattern
    found = await ask_device(served)
    events = [(event["id"], event["data"], event["state"]) for event in found["events"]]
    assert events == [(number, {"t": number}, "new") for number in (1, 2, 5)]
    (duplicate,) = found["duplicates"]
    assert duplicate == {"received": served.clock.now, "fingerprint": found["events"][1]["fingerprint"]}
    assert found["missing_ids"] == [{"boot": None, "first": 3, "last": 4}]
    assert (found["activity"]["events"], found["activity"]["duplicates"]) == (3, 1)
    assert found["warnings"] == {}


async def test_it_has_what_endangers_the_identity_and_what_to_do(served: Served) -> None:
    await send_events(served, 7, time=1_767_225_600)
    await send_events(served, 8, 3)
    await send_events(served, 2)
    found = await ask_device(served)
    assert list(found["warnings"]) == ["backwards", "time-before-2000"]
    assert "send `boot` or `time`" in found["warnings"]["backwards"]


async def test_a_device_that_was_never_heard_has_nothing(served: Served) -> None:
    found = await ask_device(served, "urn:none")
    assert (found["events"], found["duplicates"], found["missing_ids"], found["activity"]) == ([], [], [], None)


async def test_the_list_is_bounded_and_has_no_long_data(served: Served) -> None:
    await send_events(served, 1, data={"x": "x" * DEVICE_TAIL_BYTES_MAX})
    assert [event["data"] for event in (await ask_device(served))["events"]] == [None]
    await send_events(served, *range(2, DEVICE_EVENTS_MAX + 50))
    events = (await ask_device(served))["events"]
    assert [event["id"] for event in events] == list(range(50, DEVICE_EVENTS_MAX + 50))


@pytest.mark.parametrize("device", ["", "x" * (DEVICE_CHARACTERS_MAX + 1)])
async def test_a_name_that_no_device_can_have_is_refused(served: Served, device: str) -> None:
    assert (await served.client.get(DEVICE_PATH + device)).code == 400


def test_missing_ids_are_those_of_each_boot_and_of_counters_only() -> None:
    def events(boot: object, *ids: object) -> list[dict[str, object]]:
        return [{"id": id_} if boot is None else {"id": id_, "boot": boot} for id_ in ids]

    assert missing_ids(events(None, 4, 1, 2)) == [{"boot": None, "first": 3, "last": 3}]
    assert missing_ids(events(1, 1, 2, 3) + events(2, 1, 3)) == [{"boot": 2, "first": 2, "last": 2}]
    assert missing_ids(events(None, 1, 5, 9)) == []
    assert missing_ids(events(None, 1_767_225_600, 1_767_225_660)) == []
    assert missing_ids(events(None, "1", "3")) == []
    assert missing_ids([{"state": "damaged"}, {"id": 7}]) == []


BEFORE, AFTER = b'[{"device":"urn:good","id":1},', b"]"
NOT_A_MAP, UNKNOWN_FIELD = b'{"device":"urn:a","id":1,"data":3}', '{"device":"urn:ü","id":1,"colour":"red"}'.encode()
DENIED = b'{"device":"urn:denied","id":1}'
REJECTED_PATH = "/api/v1/rejected"
LONG = f"device={'*a' * 129}"


async def ask_rejected(served: Served, query: str) -> list[dict[str, Any]]:
    response = await served.client.get(f"{REJECTED_PATH}?{query}")
    assert response.code == 200, response.body
    found: list[dict[str, Any]] = response.document
    return found


async def test_they_have_reason_and_bytes_and_are_selected(tmp_path: Path) -> None:
    async with serving(tmp_path, devices=DevicesSettings(deny=("urn:denied",))) as served:
        for event in (NOT_A_MAP, UNKNOWN_FIELD, DENIED):
            assert (await served.client.post(BEFORE + event + AFTER)).document["rejected"] == 1
        everything = await ask_rejected(served, "")
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
            assert [one["number"] for one in await ask_rejected(served, query)] == numbers, query


@pytest.mark.parametrize("query", ["via=smoke", "limit=0", "limit=1001", "limit=x", "before=-1", "limt=3", LONG])
async def test_a_wrong_query_is_refused_and_names_the_word(served: Served, query: str) -> None:
    response = await served.client.get(f"{REJECTED_PATH}?{query}")
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
