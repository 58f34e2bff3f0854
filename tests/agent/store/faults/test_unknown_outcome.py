"""Commits and rollbacks of unknown outcome: nothing of them is stored, acked, or counted as declared."""

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.store.event_store import EventStore
from agent.store.layout import FILE_NAME
from agent.store.port import OutboxError
from agent.store.recovery.verify import verify
from agent.store.schema import database
from agent.store.schema.gaps import Gap
from contract.event import Event
from tests.agent.store.stores import HandClock, accept, crash_image, make_store, stored_events

ONE, TWO, THREE = (Event("d", id=number) for number in (1, 2, 3))


class AnswersWrong(sqlite3.Connection):
    """Executes a statement, or another one, and then fails."""

    fault: str = ""
    instead: str = ""

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        if sql != self.fault:
            return super().execute(sql, *parameters)
        if self.instead:
            super().execute(self.instead)
        raise sqlite3.OperationalError("disk I/O error")


def open_wrong(kind: type[AnswersWrong]) -> database.Connect:
    return lambda path: database.open_for_service(path, kind)


def write_a_fact(store: EventStore) -> None:
    store.outbox.set_fact("a", "b")


def restart(store: EventStore) -> None:
    pass


@pytest.mark.guarantee(7)
@pytest.mark.parametrize("following", [write_a_fact, restart])
async def test_a_gap_whose_declaration_failed_is_declared_whatever_comes_between(
    tmp_path: Path, clock: HandClock, following: Callable[[EventStore], None]
) -> None:
    class Wrong(AnswersWrong):
        instead = "COMMIT"

    def declare_in_vain() -> None:
        store._committer.removal.give_up(Gap(2, 2, "test"))
        Wrong.fault = "COMMIT"
        store._committer.declare()
        Wrong.fault = ""

    async with make_store(tmp_path / "live", clock, connect=open_wrong(Wrong)) as store:
        await accept(store, clock, ONE)
        await accept(store, clock, TWO)
        store._writer.call(declare_in_vain)
        following(store)
        image = crash_image(tmp_path / "live", tmp_path / "killed")
    async with make_store(image, clock) as store:
        await accept(store, clock, THREE)
        documents = [json.loads(b"{" + event.tail + b"}") for event in stored_events(store)]
    assert [document["type"] for document in documents].count("gateway.gap") == 1
    assert not verify(image / FILE_NAME).findings


async def test_deleted_bytes_are_overwritten_for_the_discarding_alone_also_where_it_fails(
    tmp_path: Path, clock: HandClock
) -> None:
    class Wrong(AnswersWrong):
        instead = "COMMIT"

    async with make_store(tmp_path, clock, connect=open_wrong(Wrong)) as store:
        await accept(store, clock, ONE)
        Wrong.fault = "COMMIT"
        assert (await accept(store, clock, TWO)).refusal
        Wrong.fault, Wrong.instead = "DELETE FROM fingerprints WHERE first_position >= ?", ""
        assert (await accept(store, clock, TWO)).refusal
        assert store._transactions.connection.get().execute("PRAGMA secure_delete").fetchone()[0] == 0


@pytest.mark.guarantee(1)
@pytest.mark.parametrize("in_truth", ["", "ROLLBACK", "COMMIT"])
async def test_of_a_transaction_whose_rollback_fails_nothing_stands_and_nobody_is_acked(
    tmp_path: Path, clock: HandClock, in_truth: str
) -> None:
    class Wrong(AnswersWrong):
        instead = in_truth
        breaks = ""

        def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
            if self.breaks and sql.startswith(self.breaks):
                raise sqlite3.OperationalError("disk I/O error")
            return super().execute(sql, *parameters)

    large = Event("d", id=9, data={"text": "x" * 60_000})
    async with make_store(tmp_path / "live", clock, connect=open_wrong(Wrong)) as store:
        await accept(store, clock, ONE)
        store._transactions.connection.get().execute("PRAGMA cache_size = 1")  # so that the log has it before its end
        Wrong.breaks, Wrong.fault = "INSERT INTO fingerprints", "ROLLBACK"
        assert (await accept(store, clock, large)).refusal
        Wrong.breaks = Wrong.fault = ""
        assert (await accept(store, clock, TWO)).accepted == 1
        assert (await accept(store, clock, large)).accepted == 1
        before = stored_events(store)
        image = crash_image(tmp_path / "live", tmp_path / "killed")
    async with make_store(image, clock) as store:
        assert stored_events(store) == before
        ids = [json.loads(b"{" + event.tail + b"}")["id"] for event in before]
        assert [number for number in ids if isinstance(number, int)] == [1, 2, 9]
        labels = {event.label for event in before}
        assert len(labels) == len(before)
        assert len({label.epoch for label in labels}) == 2, "what may have been labelled is labelled anew"
    assert not verify(image / FILE_NAME).findings


@pytest.mark.guarantee(7)
@pytest.mark.parametrize("instead", ["COMMIT", "ROLLBACK"])
async def test_what_is_given_up_again_after_an_unknown_outcome_is_declared_once(
    tmp_path: Path, clock: HandClock, instead: str
) -> None:
    class Wrong(AnswersWrong):
        pass

    Wrong.instead = instead
    async with make_store(tmp_path, clock, connect=open_wrong(Wrong)) as store:
        await accept(store, clock, ONE, TWO, THREE)
        store.outbox.give_up(2, "test")
        Wrong.fault = "COMMIT"
        with pytest.raises(OutboxError):
            store.outbox.give_up(3, "test")
        Wrong.fault = ""
        store.outbox.give_up(3, "test")
        store.outbox.give_up(4, "test")
        documents = [json.loads(b"{" + event.tail + b"}") for event in stored_events(store)]
    found = [document["data"] for document in documents if document["type"] == "gateway.gap"]
    assert [(gap["count"], [label[1:] for label in gap["labels"]]) for gap in found] == [
        (1, [[2, 2]]),
        (1, [[3, 3]]),
        (1, [[4, 4]]),
    ]
