"""`oncegate replay`: send the kept events of one epoch again."""

from __future__ import annotations

import argparse
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from agent.cli.arguments import positive
from agent.cli.failures import FAILURE, CommandError
from agent.config import load
from agent.store.errors import StoreError, naming
from agent.store.files.folders import store_folders
from agent.store.layout import FILE_NAME
from agent.store.port import StoredEvent
from agent.store.ranges import Ranges
from agent.store.read.kept import FORWARDED, LOST, NEW, PROCESSED, positions_of, read_kept
from agent.store.schema import database
from agent.terminal import count, json_line

JSON = "one JSON object"
EXAMPLES = """examples:
  oncegate status                                        names the latest epoch
  oncegate replay --epoch 5f1c0d6b6a0f4f1d
  oncegate replay --epoch 5f1c0d6b6a0f4f1d --from 1200 --to 1300

Labels and fingerprints are unchanged, so the table adds none of them twice; other readers of the topic see them
again. The agent may run meanwhile. Events are kept for store.keep_processed after their receipt.
"""
_PROGRESS_SECONDS = 2.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--epoch", required=True, metavar="E", help="the epoch, as listed by events and status")
    parser.add_argument("--from", dest="first", type=positive, default=1, metavar="N", help="first sequence (1)")
    parser.add_argument("--to", dest="last", type=positive, metavar="M", help="last sequence (the epoch's last)")


def run(arguments: argparse.Namespace) -> int:
    """Send the kept events; return 1 where not all requested ones could be sent."""
    from agent.forward.errors import SessionError  # the Kafka client is slow to load
    from agent.forward.replay import send_again

    settings = load.load(arguments.config)
    found = _find(settings.gateway.state_dir, arguments.epoch)
    if found is None:
        raise CommandError(f"epoch {arguments.epoch} is not in this store; see oncegate status and oncegate events")
    path, known = found
    with naming(path), closing(database.open_for_reading(path)) as connection:
        last = len(known) if arguments.last is None else min(arguments.last, len(known))
        requested = range(known.start + arguments.first - 1, known.start + last)
        if not requested:
            raise CommandError(f"epoch {arguments.epoch} ends at sequence {len(known):,}: nothing to send")
        result = ReplayResult(requested, known.start)
        try:
            sent = send_again(
                settings.kafka, settings.gateway.id, result.select_events(connection), _progress(len(requested))
            )
        except SessionError as error:
            raise CommandError(f"Kafka at {settings.kafka.bootstrap_servers}: {error}") from error
    if arguments.json:
        print(json_line({"epoch": arguments.epoch, "sent": sent, **result.document()}))
        return FAILURE if result.incomplete else 0
    print(f"{count(sent, 'event')} of epoch {arguments.epoch} sent again")
    for line in result.report_lines():
        print(line)
    beyond = 0 if arguments.last is None else max(0, arguments.last - len(known))
    if beyond:
        print(f"{count(beyond, 'sequence')} beyond {len(known):,}, where the epoch ends")
    return FAILURE if result.incomplete else 0


def _find(state_folder: Path, epoch: str) -> tuple[Path, range] | None:
    """Return the file of the lane's store that has an epoch, and the epoch's positions; None where none has it.

    Raise StoreError where only a store that cannot be read may have it.
    """
    unreadable: StoreError | None = None
    for folder in store_folders(state_folder).values():
        path = folder / FILE_NAME
        try:
            with naming(path), closing(database.open_for_reading(path)) as connection:
                known = positions_of(connection, epoch)
        except StoreError as error:
            unreadable = unreadable or error
        else:
            if known is not None:
                return path, known
    if unreadable is not None:
        raise unreadable
    return None


class ReplayResult:
    """The result for each requested position."""

    def __init__(self, requested: range, epoch_first: int) -> None:
        self._requested = requested
        self._epoch_first = epoch_first
        self._states: Counter[str] = Counter()
        self._kept = Ranges()

    def select_events(self, connection: sqlite3.Connection) -> Iterator[StoredEvent]:
        """Yield the events to send."""
        for kept in read_kept(connection, self._requested):
            self._kept.add(kept.event.position, kept.event.position)
            self._states[kept.state] += 1
            if kept.state in (FORWARDED, PROCESSED):
                yield kept.event

    @property
    def incomplete(self) -> bool:
        """Whether some events can no longer be sent."""
        return bool(self._missing() or self._states[LOST])

    def document(self) -> dict[str, object]:
        """Return what was not sent, and why, in JSON's types."""
        return {"not_yet_sent": self._states[NEW], "lost": self._states[LOST], "no_longer_kept": self._missing()}

    def report_lines(self) -> Iterator[str]:
        """Yield a line for each reason why events were not sent."""
        if new := self._states[NEW]:
            yield f"{count(new, 'event')} not yet sent: the agent sends them by itself"
        if lost := self._states[LOST]:
            yield f"{count(lost, 'event')} given up, and declared by gateway.gap events"
        if missing := self._missing():
            total = sum(last - first + 1 for first, last in missing)
            ranges = ", ".join(f"{first}" if first == last else f"{first} to {last}" for first, last in missing)
            yield f"{count(total, 'event')} no longer kept: sequence {ranges}"

    def _missing(self) -> list[tuple[int, int]]:
        """Return the first and the last sequence of what is no longer kept, a range each."""
        before = self._epoch_first - 1
        holes = self._kept.holes(self._requested.start, self._requested.stop - 1)
        return [(first - before, last - before) for first, last in holes]


def _progress(total: int) -> Callable[[int], None]:
    """Return a callback that prints the progress to standard error from time to time."""
    reported_at = time.monotonic()

    def report(acked: int) -> None:
        nonlocal reported_at
        if time.monotonic() - reported_at >= _PROGRESS_SECONDS:
            reported_at = time.monotonic()
            print(f"{acked:,} of at most {total:,}", file=sys.stderr)

    return report
