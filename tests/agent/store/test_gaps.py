"""Gaps: the number kept is bounded, their fingerprints are forgotten, and few events declare them."""

from contextlib import closing
from pathlib import Path

import pytest

from agent.store.errors import DamagedStoreError
from agent.store.files import swap
from agent.store.fingerprints.transient import Lifetimes
from agent.store.layout import FILE_NAME
from agent.store.memory import load
from agent.store.schema import database, gaps
from agent.store.schema.gaps import GAPS_MAX, Gap
from agent.store.write.committer import LABEL_RANGES_MAX, declarations
from contract.event import Event
from tests.agent.store.stores import GATEWAY, HandClock, accept, declared, document, make_store, stored_events
from tests.agent.store.test_event_store import ONE, TWO


def test_of_declared_gaps_the_latest_are_remembered_and_of_others_all(tmp_path: Path) -> None:
    with closing(database.open_for_service(tmp_path / "events.db")) as connection:
        connection.execute("BEGIN")
        gaps.insert(connection, *(Gap(2 * number, 2 * number, "test") for number in range(1, GAPS_MAX + 6)))
        assert len(gaps.undeclared(gaps.load(connection))) == GAPS_MAX + 5
        gaps.declare(connection, 5_000)
        assert len(gaps.load(connection)) == GAPS_MAX + 5, "the commit that declares them may not count"
        gaps.insert(connection, Gap(6_000, 6_000, "test"))
        gaps.declare(connection, 6_001)
        kept = gaps.load(connection)
    assert (kept[0].first, kept[-1].first, len(kept)) == (14, 6_000, GAPS_MAX)


@pytest.mark.guarantee(7)
async def test_more_holes_than_are_remembered_are_salvaged_once_and_all_declared(
    tmp_path: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gaps, "GAPS_MAX", 10)
    async with make_store(tmp_path, clock) as store:
        for number in range(60):
            await accept(store, clock, Event("d", id=number))
    with closing(database.open_for_service(tmp_path / FILE_NAME)) as connection:
        connection.execute("DELETE FROM events WHERE first_position % 2 = 0 AND first_position < 56")
    swap.suspect(tmp_path / FILE_NAME, "set by the test")
    for life in range(3):
        async with make_store(tmp_path, clock) as store:
            await accept(store, clock, Event("d", id=f"later {life}"))
            events = stored_events(store)
            assert not store.failed.done()
            assert not swap.suspicion(tmp_path / FILE_NAME)
            assert sum(b'"device":"d"' in event.tail for event in events) == 60 - 26 + 1 + life
            assert [gap["count"] for gap in declared(events)] == [26]


@pytest.mark.guarantee(3)
def test_a_declaration_that_is_given_up_is_made_again(tmp_path: Path) -> None:
    with closing(database.open_for_service(tmp_path / "events.db")) as connection:
        gaps.insert(connection, Gap(1, 10, "test"))
        gaps.declare(connection, 15)
        gaps.insert(connection, Gap(30, 40, "test"))
        assert gaps.undeclared(gaps.load(connection)) == [Gap(30, 40, "test")]
        gaps.insert(connection, Gap(11, 20, "test"))
        assert gaps.undeclared(gaps.load(connection)) == [Gap(30, 40, "test"), Gap(1, 20, "test")]


def test_many_gaps_of_one_reason_take_few_events(tmp_path: Path, clock: HandClock) -> None:
    with closing(database.open_for_service(tmp_path / "events.db")) as connection:
        memory = load(connection, clock, Lifetimes())
    memory.epochs.add(1, "epoch")
    memory.undeclared.extend(Gap(2 * number, 2 * number, "test") for number in range(1, LABEL_RANGES_MAX + 2))
    memory.undeclared.append(Gap(900, 899, "test"))
    events = [document(candidate)["data"] for candidate in declarations(GATEWAY, memory, clock)]
    assert [data["count"] for data in events] == [LABEL_RANGES_MAX, 1]
    assert events[1]["labels"] == [["epoch", 2 * LABEL_RANGES_MAX + 2, 2 * LABEL_RANGES_MAX + 2]]
    assert (events[0]["found_to_epoch"], events[0]["found_to_sequence"]) == ("epoch", 899)


async def test_a_damaged_fact_is_raised_and_never_taken_for_none(tmp_path: Path, clock: HandClock) -> None:
    async with make_store(tmp_path, clock) as store:
        store.outbox.set_fact("receipts.table", "table-1")
        await accept(store, clock, ONE)
    path = tmp_path / FILE_NAME
    path.write_bytes(path.read_bytes().replace(b"table-1", b"table-2"))
    async with make_store(tmp_path, clock) as store:
        with pytest.raises(DamagedStoreError, match="facts"):
            store.outbox.fact("receipts.table")
        assert swap.suspicion(path)
    async with make_store(tmp_path, clock) as store:
        assert store.outbox.fact("receipts.table") is None
        await accept(store, clock, TWO)
        assert [b"gateway.gap" in event.tail for event in stored_events(store)].count(True) == 1
