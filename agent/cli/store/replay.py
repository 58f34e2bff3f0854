"""`oncegate replay`: send the kept events of one epoch again."""

import argparse
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
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
    path, known = _find(settings.gateway.state_dir, arguments.epoch)
    with naming(path), closing(database.open_for_reading(path)) as connection:
        last = len(known) if arguments.last is None else min(arguments.last, len(known))
        requested = range(known.start + arguments.first - 1, known.start + last)
        if not requested:
            raise CommandError(f"epoch {arguments.epoch} ends at sequence {len(known):,}: nothing to send")
        states: Counter[str] = Counter()
        kept = Ranges()
        events = select_events(connection, requested, states, kept)
        try:
            sent = send_again(settings.kafka, settings.gateway.id, events, _progress(len(requested)))
        except SessionError as error:
            raise CommandError(f"Kafka at {settings.kafka.bootstrap_servers}: {error}") from error
    holes, before = kept.holes(requested.start, requested.stop - 1), known.start - 1
    missing = [(first - before, last - before) for first, last in holes]
    if arguments.json:
        unsent = {"not_yet_sent": states[NEW], "lost": states[LOST], "no_longer_kept": missing}
        print(json_line({"epoch": arguments.epoch, "sent": sent, **unsent}))
    else:
        print(f"{count(sent, 'event')} of epoch {arguments.epoch} sent again")
        for line in unsent_lines(states, missing):
            print(line)
        beyond = 0 if arguments.last is None else max(0, arguments.last - len(known))
        if beyond:
            print(f"{count(beyond, 'sequence')} beyond {len(known):,}, where the epoch ends")
    return FAILURE if missing or states[LOST] else 0


def _find(state_folder: Path, epoch: str) -> tuple[Path, range]:
    """Return the file of the lane's store that has an epoch, and the epoch's positions.

    Raise CommandError where none has it, and StoreError where only a store that cannot be read may have it.
    """
    errors: list[Exception] = []
    for folder in store_folders(state_folder).values():
        path = folder / FILE_NAME
        try:
            with naming(path), closing(database.open_for_reading(path)) as connection:
                if (known := positions_of(connection, epoch)) is not None:
                    return path, known
        except StoreError as error:
            errors.append(error)
    unknown = CommandError(f"epoch {epoch} is not in this store; see oncegate status and oncegate events")
    raise (*errors, unknown)[0]


def select_events(
    connection: sqlite3.Connection, requested: range, states: Counter[str], kept: Ranges
) -> Iterator[StoredEvent]:
    """Yield the forwarded and processed events; count all kept ones by state, and note their positions."""
    for one in read_kept(connection, requested):
        kept.add(one.event.position, one.event.position)
        states[one.state] += 1
        if one.state in (FORWARDED, PROCESSED):
            yield one.event


def unsent_lines(states: Counter[str], missing: Sequence[tuple[int, int]]) -> Iterator[str]:
    """Yield a line for each reason why events were not sent; `missing` are sequences, first and last."""
    if new := states[NEW]:
        yield f"{count(new, 'event')} not yet sent: the agent sends them by itself"
    if lost := states[LOST]:
        yield f"{count(lost, 'event')} given up, and declared by gateway.gap events"
    if missing:
        total = sum(last - first + 1 for first, last in missing)
        ranges = ", ".join(f"{first}" if first == last else f"{first} to {last}" for first, last in missing)
        yield f"{count(total, 'event')} no longer kept: sequence {ranges}"


def _progress(total: int) -> Callable[[int], None]:
    """Return a callback that prints the progress to standard error from time to time."""
    reported_at = time.monotonic()

    def report(acked: int) -> None:
        nonlocal reported_at
        if time.monotonic() - reported_at >= _PROGRESS_SECONDS:
            reported_at = time.monotonic()
            print(f"{acked:,} of at most {total:,}", file=sys.stderr)

    return report
