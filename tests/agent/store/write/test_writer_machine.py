"""A state machine: no order of events, duplicates, failures, marks, kills and restarts loses or doubles an event."""

import asyncio
import shutil
import sqlite3
import tempfile
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agent.store.layout import FILE_NAME
from agent.store.port import Outcome
from agent.store.schema import database
from contract.event import Event, Label
from contract.fingerprint import fingerprint
from tests.agent.store.stores import (
    FaultyConnection,
    HandClock,
    accept,
    batch,
    crash_image,
    make_store,
    stored_events,
    which_are_known,
)

T = TypeVar("T")

EVENTS_MAX = 40
SEGMENT_EVENTS = 8
"""Small enough that most events are sealed soon."""
STATEMENTS = ("BEGIN", "INSERT INTO epochs", "INSERT INTO events", "INSERT INTO fingerprints", "COMMIT")
SEALING = ("INSERT OR REPLACE INTO sealed", "INSERT OR REPLACE INTO segments", "DELETE FROM fingerprints")


class StoreMachine(RuleBasedStateMachine):
    """The model: which events were acked, which are processed, and every label assigned so far.

    The writer's thread also writes between the rules: whether a kill finds a mark on the disk depends on the moment. No
    rule has a precondition, therefore, so that the same choices always select the same rules.
    """

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="store-machine-"))
        self.folders = 0
        self.folder = self.root / "0"
        self.clock = HandClock()
        self.runner = asyncio.Runner()
        self.acked: set[int] = set()
        """Ids that a sensor has an ACK for."""
        self.nameless = 0
        """Acked events that have neither id nor time."""
        self.given_up: set[int] = set()
        """Positions whose events are forgotten, so that a sensor's resend is new."""
        self.labels: dict[int, Label] = {}
        self.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def start(self) -> None:
        async def start() -> None:
            self.stack = AsyncExitStack()
            self.store = await self.stack.enter_async_context(
                make_store(
                    self.folder,
                    self.clock,
                    connect=_connect,
                    keep_processed_seconds=10**9,
                    segment_events=SEGMENT_EVENTS,
                )
            )

        self.run(start())

    def teardown(self) -> None:
        FaultyConnection.fault = ""
        self.run(self.stack.aclose())
        self.runner.close()
        shutil.rmtree(self.root)

    @rule(numbers=st.lists(st.integers(1, EVENTS_MAX), min_size=1, max_size=4))
    def send(self, numbers: list[int]) -> None:
        outcome = self.accept(*(Event("d", id=number, data={"n": number}) for number in numbers))
        assert not outcome.refusal
        assert outcome.accepted == len(set(numbers) - self.acked)
        self.acked |= set(numbers)

    @rule()
    def send_nameless(self) -> None:
        assert self.accept(Event("d", data={"n": 0})).accepted == 1
        self.nameless += 1

    @rule(number=st.integers(1, EVENTS_MAX), statement=st.sampled_from(STATEMENTS))
    def send_to_a_failing_disk(self, number: int, statement: str) -> None:
        FaultyConnection.fault = statement
        outcome = self.accept(Event("d", id=number, data={"n": number}))
        FaultyConnection.fault = ""
        if not outcome.refusal:
            assert outcome.duplicates == 1 or statement == "INSERT INTO epochs"
            self.acked.add(number)

    @rule(turns=st.integers(1, 100), statement=st.sampled_from((*SEALING, "COMMIT", "")))
    def seal_on_a_failing_disk(self, turns: int, statement: str) -> None:
        FaultyConnection.fault = statement
        for _ in range(turns):
            self.store._writer.call(lambda: void(self.store._maintenance.run_due()))
        FaultyConnection.fault = ""
        self.clock.pass_seconds(10)

    @rule(choice=st.integers(0, EVENTS_MAX - 1))
    def give_up(self, choice: int) -> None:
        if not self.acked:
            return
        number = sorted(self.acked)[choice % len(self.acked)]
        kept = [event for event in stored_events(self.store) if b'"id":%d,' % number in event.tail]
        for event in kept:
            self.store._writer.call(lambda: self.store._committer.give_up(event.position, event.position, "test"))  # noqa: B023
            self.acked.remove(number)
            self.given_up.add(event.position)

    @rule(count=st.integers(1, 5))
    def forward(self, count: int) -> None:
        if events := self.store.outbox.read(0, count, 1 << 20):
            self.store.outbox.mark_forwarded(batch(events[0].position, events[-1].position, events[0].position))

    @rule()
    def process(self) -> None:
        self.store.outbox.mark_processed(self.store.outbox.forwarded()[:1])

    @rule()
    def return_batch(self) -> None:
        self.store.outbox.return_batches(self.store.outbox.forwarded()[-1:])

    @rule()
    def restart(self) -> None:
        self.run(self.stack.aclose())
        self.start()

    @rule()
    def kill(self) -> None:
        self.folders += 1
        image = crash_image(self.folder, self.root / str(self.folders))
        self.run(self.stack.aclose())
        self.folder = image
        self.start()

    @invariant()
    def every_acked_event_is_there_once(self) -> None:
        tails = [bytes(tail) for tail in self.tails()]
        for number in self.acked:
            assert sum(b'"id":%d,' % number in tail for tail in tails) == 1
        assert sum(b'"id"' not in tail for tail in tails) == self.nameless

    @invariant()
    def every_acked_event_is_known(self) -> None:
        numbers = range(1, EVENTS_MAX + 1)
        known = which_are_known(self.store, [fingerprint(Event("d", id=n, data={"n": n})) for n in numbers])
        assert known == [number in self.acked for number in numbers]

    @invariant()
    def a_label_never_changes_hands(self) -> None:
        for event in stored_events(self.store):
            assert self.labels.setdefault(event.position, event.label) == event.label or not self.acked
        labels = [event.label for event in stored_events(self.store)]
        assert len(set(labels)) == len(labels)

    def accept(self, *events: Event) -> Outcome:
        return self.run(accept(self.store, self.clock, *events))

    def tails(self) -> list[bytes]:
        """Read all events of the file, in any state."""
        from agent.store.read.events import read_packed

        connection = database.open_for_reading(self.folder / FILE_NAME)
        try:
            found = read_packed(connection, 1, 10**9)
            return [event.tail for event in found if event.position not in self.given_up]
        finally:
            connection.close()


def void(_: object) -> None:
    """Discard a result that no caller awaits."""


def _connect(path: Path) -> sqlite3.Connection:
    return database.open_for_service(path, FaultyConnection)


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=60, stateful_step_count=25)
