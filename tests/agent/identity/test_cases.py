"""Which messages are one event: typical cases of sensors, from bytes to store."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.config.identity_rules import IdentityRule, read_rules
from agent.config.settings import IdentitySettings
from agent.delivery import Answer, Delivery, Media
from agent.identity.identify import rule_for
from agent.identity.warnings import LINES_MAX, LINES_SECONDS, Danger, IdentityWarnings
from agent.pipeline import Pipeline
from agent.store.event_store import EventStore
from agent.store.port import Candidate, Outcome, StoredEvent
from contract.event import Event
from contract.fingerprint import IDENTITY_FIELDS
from contract.record import ClockTrust, SharedDay
from tests.agent.store.stores import HandClock, crash_image, make_store, stored_events

DEVICE = "urn:dev:mac:00158d0001a2b3c4"


@dataclass(slots=True)
class Gateway:
    store: EventStore
    pipeline: Pipeline

    async def take(self, body: object) -> Answer:
        """Deliver a body as JSON, and wait for the answer."""
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        delivery = Delivery(json.dumps(body).encode(), Media.JSON, "coap", "coap://[fe80::1]")
        self.pipeline.receive(delivery, answered.set_result)
        async with asyncio.timeout(60):
            return await answered

    def events(self) -> list[StoredEvent]:
        """Return the events of devices, in order."""
        return [event for event in stored_events(self.store) if b'"via":"gateway"' not in event.tail]


@asynccontextmanager
async def gateway(folder: Path, *rules: IdentityRule, clock: HandClock | None = None) -> AsyncIterator[Gateway]:
    settings, clock = IdentitySettings(rules=rules), clock or HandClock()
    async with make_store(folder, clock, rules=rules) as store:
        yield Gateway(store, Pipeline(settings, clock, store))


UNTIMED = ("device", "type", "id", "boot", "data")
WITHOUT_TIME = IdentityRule("urn:dev:mac:*", UNTIMED)
NEVER_REPEATS = IdentityRule("urn:dev:mac:*", UNTIMED, window_seconds=60)


def event(**fields: object) -> dict[str, object]:
    return {"device": DEVICE, "data": {"t": 21.5}, **fields}


async def test_a_resend_that_is_stamped_anew_is_kept_and_names_the_earlier(tmp_path: Path) -> None:
    async with gateway(tmp_path) as taken:
        first = await taken.take(event(id=7, time=1))
        second = await taken.take(event(id=7, time=2))
        assert (first.accepted, second.accepted) == (1, 1)
        assert b'"possible_duplicate_of":"%s"' % first.fingerprints[0].hex().encode() in taken.events()[1].tail


@pytest.mark.parametrize(("first", "second"), [(-1, -2), (0, 2**61 - 1), (1, "1")])
async def test_an_event_with_another_id_does_not_name_it_though_python_hashes_both_alike(
    tmp_path: Path, first: object, second: object
) -> None:
    async with gateway(tmp_path) as taken:
        for time, number in enumerate((first, second)):
            assert (await taken.take(event(id=number, time=time))).accepted == 1
        assert not any(b"possible_duplicate_of" in stored.tail for stored in taken.events())


@pytest.mark.guarantee(2)
async def test_with_a_rule_without_time_it_is_a_copy(tmp_path: Path) -> None:
    async with gateway(tmp_path, WITHOUT_TIME) as taken:
        first = await taken.take(event(id=7, time=1))
        second = await taken.take(event(id=7, time=2))
        other = await taken.take(event(id=8, time=2))
        stranger = await taken.take({**event(id=7, time=2), "device": "urn:x:1"})
        assert (second.accepted, second.duplicates) == (0, 1)
        assert first.fingerprints == second.fingerprints
        assert (other.accepted, stranger.accepted) == (1, 1)
        kept = taken.events()[0]
    assert (kept.shared, kept.bound) == (SharedDay.NONE, None)
    assert b'"time":1' in kept.tail


@pytest.mark.guarantee(2)
async def test_a_counter_that_starts_again_with_another_boot_gives_new_events(tmp_path: Path) -> None:
    async with gateway(tmp_path) as taken:
        for boot in (1, 2):
            for number in (0, 1):
                assert (await taken.take(event(id=number, boot=boot))).accepted == 1


async def test_a_counter_that_starts_again_without_boot_looks_old_where_data_is_equal_and_is_new_elsewhere(
    tmp_path: Path,
) -> None:
    async with gateway(tmp_path) as taken:
        assert (await taken.take(event(id=0))).accepted == 1
        assert (await taken.take(event(id=1))).accepted == 1
        assert (await taken.take(event(id=0))).duplicates == 1
        assert (await taken.take(event(id=0, data={"t": 22}))).accepted == 1


@pytest.mark.guarantee(2)
async def test_a_device_that_never_repeats_a_value_is_believed_for_the_window_from_the_first_copy_on(
    tmp_path: Path, clock: HandClock
) -> None:
    async with gateway(tmp_path, NEVER_REPEATS, clock=clock) as taken:
        first = await taken.take(event())
        for _ in range(2):
            clock.pass_seconds(30)
            copy = await taken.take(event())
            assert (copy.accepted, copy.duplicates, copy.fingerprints) == (0, 1, first.fingerprints)
        clock.pass_seconds(1)  # 61 s after the first and 1 s after the latest duplicate: the window is not extended
        anew = await taken.take(event())
        assert (anew.accepted, anew.duplicates) == (1, 0)
        assert anew.fingerprints != first.fingerprints
        assert (await taken.take(event())).fingerprints == anew.fingerprints
        assert (await taken.take(event(data={"t": 22}))).accepted == 1
        assert (await taken.take({**event(), "device": "urn:x:1"})).accepted == 1
        assert (await taken.take({**event(), "device": "urn:x:1"})).accepted == 1


@pytest.mark.guarantee(2)
async def test_the_window_outlives_a_kill_and_the_transports_own_span(tmp_path: Path, clock: HandClock) -> None:
    rule = IdentityRule("*", UNTIMED, window_seconds=600)
    async with gateway(tmp_path / "a", rule, clock=clock) as taken:
        first = await taken.take([event(), event(data={"t": 22}), event()])
        assert (first.accepted, first.duplicates) == (2, 1)
        assert first.fingerprints[0] == first.fingerprints[2]
        crash_image(tmp_path / "a", tmp_path / "b")
    clock.pass_seconds(500)
    shutil.rmtree(tmp_path / "a")
    async with gateway(tmp_path / "b", rule, clock=clock) as taken:
        copy = await taken.take(event(data={"t": 22}))
        assert (copy.accepted, copy.duplicates, copy.fingerprints) == (0, 1, first.fingerprints[1:2])
        clock.pass_seconds(101)
        assert (await taken.take(event(data={"t": 22}))).accepted == 1


def test_a_rule_is_read() -> None:
    rules = read_rules([{"device": "a*", "fields": ["data", "device"], "ambiguous": "drop", "window": "90s"}])
    assert rules == (IdentityRule("a*", ("device", "data"), 90.0),)
    assert read_rules([{"device": "a*", "ambiguous": "keep"}]) == (IdentityRule("a*", IDENTITY_FIELDS, None),)


def test_the_first_rule_that_fits_counts() -> None:
    first, second = IdentityRule("urn:a:*"), IdentityRule("urn:*", ("device", "id"))
    assert rule_for((first, second), "urn:a:1") is first
    assert rule_for((first, second), "urn:b:1") is second
    assert rule_for((first, second), "coap://[::1]") is None


@given(fields=st.sets(st.sampled_from(IDENTITY_FIELDS[1:])))
def test_the_fields_stand_in_one_order(fields: set[str]) -> None:
    (rule,) = read_rules([{"device": "*", "fields": [*fields, "device"]}])
    assert list(rule.fields) == [name for name in IDENTITY_FIELDS if name == "device" or name in fields]


MOMENT = 1_767_225_600_000


def look(
    warnings: IdentityWarnings, *events: Event, accepted: int | None = None, fields: tuple[str, ...] = IDENTITY_FIELDS
) -> None:
    candidates = [
        Candidate(event, b"", b"", 0, ClockTrust.TRUSTED, SharedDay.NONE, None, fields=fields) for event in events
    ]
    warnings.check(candidates, Outcome(len(events) if accepted is None else accepted))


def test_ids_that_go_back_are_noticed_unless_boot_or_a_time_that_the_rule_has_tells_why() -> None:
    warnings = IdentityWarnings(lambda: 0.0)
    for number in (5, 6, 1):
        look(warnings, Event("a", id=number))
        look(warnings, Event("b", id=number, boot=1))
        look(warnings, Event("c", id=number, time=MOMENT))
        look(warnings, Event("d", id=str(number)))
        look(warnings, Event("e", id=number, time=MOMENT + number), fields=UNTIMED)
    assert warnings.counts == {Danger.BACKWARDS: 2}


def test_a_time_in_seconds_is_noticed() -> None:
    warnings = IdentityWarnings(lambda: 0.0)
    look(warnings, Event("a", time=MOMENT // 1000), Event("b", time=MOMENT), Event("c", time=0), Event("d", time=-1))
    assert warnings.counts == {Danger.EARLY: 3}


def test_names_that_differ_only_in_case_are_noticed_with_the_second_one_once_and_counted_each_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    warnings = IdentityWarnings(lambda: 0.0)
    for number in range(3):
        look(
            warnings,
            Event("urn:dev:mac:00158d", id=number),
            Event("urn:dev:mac:00158D", id=number),
            Event("b", id=number),
        )
    assert warnings.counts == {Danger.CASE: 3}
    (record,) = caplog.records
    assert "case-of-device device='urn:dev:mac:00158D'" in record.getMessage()


def test_copies_and_the_order_within_a_pack_are_no_reason() -> None:
    warnings = IdentityWarnings(lambda: 0.0)
    look(warnings, Event("a", id=3), Event("a", id=2), Event("a", id=1))
    look(warnings, Event("a", id=2), accepted=0)
    look(warnings, Event("a", id=4), Event("a", id=1), accepted=1)
    assert not warnings.counts
    look(warnings, Event("a", id=2), Event("a", id=1))
    assert warnings.counts == {Danger.BACKWARDS: 1}


def test_many_devices_fill_no_journal_and_get_their_line_later(
    caplog: pytest.LogCaptureFixture, clock: HandClock
) -> None:
    warnings = IdentityWarnings(lambda: clock.running / 1000)
    for number in range(1_000):
        look(warnings, Event(f"coap://[fe80::{number:x}]", id=1))
    assert len(caplog.records) == LINES_MAX
    assert warnings.counts == {Danger.UNNAMED: 1_000}
    clock.pass_seconds(LINES_SECONDS + 1)
    look(warnings, Event("coap://[fe80::3e7]", id=2))
    assert len(caplog.records) == LINES_MAX + 1
