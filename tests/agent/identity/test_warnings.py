"""Risks to an event's identity are counted, and logged once per device, within a bound."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.identity.warnings import LINES_MAX, LINES_SECONDS, Danger, IdentityWarnings
from agent.store.port import Candidate, Outcome
from contract.event import Event
from contract.record import ClockTrust, Shared
from tests.agent.identity.gateway import DEVICE, gateway
from tests.agent.store.stores import HandClock

MOMENT = 1_767_225_600_000


def look(warnings: IdentityWarnings, *events: Event, accepted: int | None = None) -> None:
    candidates = [Candidate(event, b"", b"", 0, ClockTrust.TRUSTED, Shared.NONE, None) for event in events]
    warnings.check(candidates, Outcome(len(events) if accepted is None else accepted))


def test_ids_that_go_back_are_noticed_unless_boot_or_time_tells_why() -> None:
    warnings = IdentityWarnings(lambda: 0.0)
    for number in (5, 6, 1):
        look(warnings, Event("a", id=number))
        look(warnings, Event("b", id=number, boot=1))
        look(warnings, Event("c", id=number, time=MOMENT))
        look(warnings, Event("d", id=str(number)))
    assert warnings.counts == {Danger.BACKWARDS: 1}


def test_a_time_in_seconds_is_noticed() -> None:
    warnings = IdentityWarnings(lambda: 0.0)
    look(warnings, Event("a", time=MOMENT // 1000), Event("b", time=MOMENT), Event("c", time=0), Event("d", time=-1))
    assert warnings.counts == {Danger.EARLY: 3}


def test_names_that_differ_only_in_case_are_noticed_with_the_second_one(caplog: pytest.LogCaptureFixture) -> None:
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


def test_a_time_that_a_rule_leaves_out_tells_nothing() -> None:
    warnings = IdentityWarnings(lambda: 0.0)
    for number in (5, 1):
        event, fields = Event("a", id=number, time=MOMENT + number), ("device", "type", "id", "boot", "data")
        stamped = Candidate(event, b"", b"", 0, ClockTrust.TRUSTED, Shared.NONE, None, fields=fields)
        warnings.check([stamped], Outcome(1))
    assert warnings.counts == {Danger.BACKWARDS: 1}


def test_copies_and_the_order_within_a_pack_are_no_reason() -> None:
    warnings = IdentityWarnings(lambda: 0.0)
    look(warnings, Event("a", id=3), Event("a", id=2), Event("a", id=1))
    look(warnings, Event("a", id=2), accepted=0)
    look(warnings, Event("a", id=4), Event("a", id=1), accepted=1)
    assert not warnings.counts
    look(warnings, Event("a", id=2), Event("a", id=1))
    assert warnings.counts == {Danger.BACKWARDS: 1}


def test_a_device_is_named_once_and_counted_each_time(caplog: pytest.LogCaptureFixture) -> None:
    warnings = IdentityWarnings(lambda: 0.0)
    for number in range(5):
        look(warnings, Event("coap://[fe80::1]", id=number))
    assert warnings.counts == {Danger.UNNAMED: 5}
    (record,) = caplog.records
    assert "coap://[fe80::1]" in record.getMessage()


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


async def test_the_pipeline_looks_at_what_is_on_disk(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with gateway(tmp_path, HandClock()) as taken:
        for number in (2, 1, 1):
            await taken.take({"device": DEVICE, "id": number, "data": {"n": number}})
        await taken.take({"data": {"n": 1}})
        assert taken.pipeline.warnings.counts == {Danger.BACKWARDS: 1, Danger.UNNAMED: 1}
    assert sum("identity=" in record.getMessage() for record in caplog.records) == 2
