"""The trace of an agent: what it receives, commits and acks, a line each, and how its lives end."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from agent.store.event_store import EventStore
from agent.store.port import Outcome, Submission
from agent.store.write.committer import Committer
from agent.store.write.decision import Decision
from tests.crashes import oracle


class NoTrace:
    """Notes nothing."""

    def begin(self) -> None:
        """Have the store of this process, the agent's, note its work."""

    def note(self, event: str, ids: Sequence[int | str | None] = ()) -> None:
        """Append a line."""

    def note_found(self, store: Path) -> None:
        """Append a line with the events in a store."""


class TraceFile(NoTrace):
    """A file with one JSON object in each line."""

    def __init__(self, file: Path) -> None:
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)

    def begin(self) -> None:
        opening, submit, write = EventStore._open, EventStore.submit, Committer._write

        def open_and_note(store: EventStore) -> None:
            opening(store)
            self.note("opened")

        def note_and_submit(store: EventStore, submission: Submission) -> None:
            ids = [candidate.event.id for candidate in submission.candidates]
            self.note("received", ids)

            def note_and_answer(outcome: Outcome) -> None:
                self.note("refused" if outcome.refusal else "acked", ids)
                submission.done(outcome)

            submit(store, replace(submission, done=note_and_answer))

        def write_and_note(committer: Committer, decision: Decision) -> None:
            write(committer, decision)
            for submission, outcome in decision.after_commit:
                chosen = zip(submission.candidates, outcome.new, strict=True)
                if ids := [candidate.event.id for candidate, is_new in chosen if is_new]:
                    self.note("committed", ids)

        EventStore._open = open_and_note  # type: ignore[method-assign, assignment]
        EventStore.submit = note_and_submit  # type: ignore[method-assign, assignment]
        Committer._write = write_and_note  # type: ignore[method-assign, assignment]

    def note(self, event: str, ids: Sequence[int | str | None] = ()) -> None:
        os.write(self._file, f"{json.dumps({'event': event, 'ids': list(ids)})}\n".encode())

    def note_found(self, store: Path) -> None:
        self.note("found", sorted(number for number, _, _ in oracle.read(store).events))
