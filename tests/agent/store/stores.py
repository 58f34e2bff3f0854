"""Stores for the tests: real ones on disk, with a clock that the test sets."""

import asyncio
import json
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any

import pytest

from agent.clock import Clock
from agent.config.lanes import DEFAULT_LANE
from agent.config.settings import IdentitySettings, StoreSettings
from agent.identity.identify import identify
from agent.store.event_store import EventStore
from agent.store.fingerprints.index import SEGMENT_EVENTS
from agent.store.format.packing import pack_fields
from agent.store.lanes import LaneStores
from agent.store.layout import FILE_NAME
from agent.store.memory import Memory
from agent.store.port import Batch, Candidate, Offsets, Outcome, Reject, StoredEvent, Submission
from agent.store.schema import database, tables
from agent.store.schema.tables import EpochStart
from agent.store.write.capacity import Capacity
from contract.event import Event, Label
from contract.record import ClockTrust, SharedDay

GATEWAY = "gw-test"
TOPIC_ID = "topic-1"
START = 1_763_706_000_000


@dataclass(slots=True)
class HandClock:
    """A clock that only the test advances."""

    now: int = START
    running: int = 1_000_000
    boot_name: str = "boot-1"
    trusted: ClockTrust = ClockTrust.TRUSTED

    def wall_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.running

    def uptime_ms(self) -> int:
        return self.running

    def boot(self) -> str:
        return self.boot_name

    def trust(self) -> ClockTrust:
        return self.trusted

    def pass_seconds(self, seconds: float) -> None:
        self.now += int(seconds * 1000)
        self.running += int(seconds * 1000)


def make_store(
    folder: Path, clock: Clock | None = None, *, connect: database.Connect = database.open_for_service, **settings: Any
) -> EventStore:
    """Create a store, without a clock with one that stands still."""
    of_identity = {one.name for one in fields(IdentitySettings)} & settings.keys()
    identity = IdentitySettings(**{name: settings.pop(name) for name in of_identity})
    segments = settings.pop("segment_events", SEGMENT_EVENTS)
    parts = (folder, GATEWAY, StoreSettings(**settings), identity, clock or HandClock())
    return EventStore(*parts, connect=connect, segment_events=segments)


def write_commits(folder: Path, sizes: Iterable[int], bytes_min: int) -> int:
    """Fill a new store to a size by commits of so many events, in turn; return the last position.

    Without the service, which would flush single events one by one, and without their fingerprints.
    """
    chance, following = Random(bytes_min), 1
    folder.mkdir(parents=True, exist_ok=True)
    with closing(database.open_for_service(folder / FILE_NAME)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN")
        tables.insert_epoch(connection, 1, EpochStart("0" * 16, "", 0, START, trusted=False, service_ms=0))
        for number, size in enumerate(cycle(sizes)):
            found = {chance.randbytes(16): position for position in range(following, following + size)}
            packed = [
                pack_fields(position, key, _tail(position, key), ClockTrust.TRUSTED, SharedDay.NONE, None)
                for key, position in found.items()
            ]
            tables.insert_events(connection, following, packed)
            following += size
            if number % 100 == 0 and database.used_bytes(connection) >= bytes_min:
                break
        connection.execute("COMMIT")
        database.empty_log(connection)
    return following - 1


def _tail(position: int, key: bytes) -> bytes:
    return b'"device":"d","id":%d,"data":{"text":"%s"}' % (position, key.hex().encode())


def commits(store: EventStore) -> int:
    """Return how many transactions have reached the disk since the start."""
    return store.commit_durations.cumulative()[-1][1]


def nearly_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each commit read the store's size from SQLite, as near the bound."""
    monkeypatch.setattr(Capacity, "_bytes_at_most", lambda _: 1 << 62)


def candidate(clock: Clock, event: Event, via: str = "coap") -> Candidate:
    return identify(event, via, clock.wall_ms(), clock.trust(), IdentitySettings())


def submit(
    store: EventStore | LaneStores,
    *events: Event,
    key: bytes | None = None,
    rejects: tuple[Reject, ...] = (),
    via: str = "coap",
    refusal: str = "",
) -> asyncio.Future[Outcome]:
    """Submit one delivery at the store's time; the future is its outcome."""
    clock = (store.by_lane[DEFAULT_LANE] if isinstance(store, LaneStores) else store)._clock
    done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    candidates = tuple(candidate(clock, event, via) for event in events)
    uptime_ms = None if clock.trust() is ClockTrust.TRUSTED else clock.uptime_ms()
    intake = store.intake if isinstance(store, LaneStores) else store
    intake.submit(Submission(candidates, rejects, key, done.set_result, uptime_ms, refusal=refusal))
    return done


async def accept(store: EventStore | LaneStores, *events: Event, **more: Any) -> Outcome:
    return await asyncio.wait_for(submit(store, *events, **more), 60)


def stored_events(store: EventStore) -> list[StoredEvent]:
    """Return all new events in order."""
    events: list[StoredEvent] = []
    while found := store.outbox.read(events[-1].position if events else 0, 100, 1 << 20):
        events.extend(found)
    return events


def document(event: StoredEvent | Candidate) -> dict[str, Any]:
    entries: dict[str, Any] = json.loads(b"{" + event.tail + b"}")
    return entries


def declared(events: Iterable[StoredEvent]) -> list[dict[str, Any]]:
    """Return what the gaps among events declare."""
    return [entries["data"] for entries in map(document, events) if entries["type"] == "gateway.gap"]


def lost_labels(events: Iterable[StoredEvent]) -> tuple[set[Label], set[Label]]:
    """Return the labels in the gaps among events, and those after which events may be lost according to gaps."""
    lost, found_to = set[Label](), set[Label]()
    for data in declared(events):
        if "found_to_epoch" in data:
            found_to.add(Label(data["found_to_epoch"], data["found_to_sequence"]))
        lost.update(Label(epoch, number) for epoch, first, last in data["labels"] for number in range(first, last + 1))
    return lost, found_to


def mark_processed(store: EventStore, first: int, last: int) -> None:
    """Mark events, and all that were forwarded before, as written to the table."""
    store.outbox.mark_forwarded(batch(first, last))
    store.outbox.mark_processed(store.outbox.forwarded())


def process_all(store: EventStore) -> None:
    """Mark all new events as written to the table."""
    events = stored_events(store)
    mark_processed(store, events[0].position, events[-1].position)


def write_back(store: EventStore) -> None:
    store._writer.call(lambda: database.write_back(store._transactions.connection.get()))


def take_turns(store: EventStore, count: int, until: Callable[[], bool] = lambda: False) -> None:
    """Have the writer take turns, which do postponed work; fewer where something is so before."""
    for _ in range(count):
        if until():
            return
        store.trouble()


def rows(folder: Path, query: str) -> list[tuple[Any, ...]]:
    """Return what a query finds in a store, as a command does beside the agent."""
    with closing(database.open_for_reading(folder / FILE_NAME)) as connection:
        return connection.execute(query).fetchall()


def change(folder: Path, *statements: str, values: Sequence[object] = ()) -> None:
    """Change a store's file by statements that no agent runs; each finds what it changes."""
    with closing(sqlite3.connect(folder / FILE_NAME, isolation_level=None)) as connection:
        for statement in statements:
            assert connection.execute(statement, tuple(values)).rowcount > 0


@contextmanager
def holding_the_log(folder: Path) -> Iterator[None]:
    """Read from the store in a transaction that does not end within the block."""
    with closing(database.open_for_reading(folder / FILE_NAME)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM events").fetchone()
        yield


def which_are_known(store: EventStore, fingerprints: Iterable[bytes]) -> list[bool]:
    """Look fingerprints up in the store's memory, in the thread of the connection that it uses.

    From another thread SQLite would wait for the connection without releasing the GIL, and a disk that is implemented
    in Python (failing_disk.py) would wait for the GIL in the middle of a write: a deadlock that no time limit ends.
    """
    index, connection = store._memory.fingerprints, store._transactions.connection.get
    return store._writer.call(lambda: [index.position(one, connection) is not None for one in fingerprints])


def position_of(memory: Memory, connection: sqlite3.Connection, fingerprint: bytes) -> int | None:
    """Return the position that a loaded store has for a fingerprint."""
    return memory.fingerprints.position(fingerprint, lambda: connection)


def batch(first: int, last: int, offset: int = 0) -> Batch:
    return Batch(first, last, TOPIC_ID, {0: Offsets(offset, offset + last - first)})


def crash_image(folder: Path, to: Path) -> Path:
    """Copy the files that a kill would leave now: the database and its write-ahead log."""
    to.mkdir()
    with closing(database.open_as_it_is(folder / FILE_NAME)) as reader:
        # Its snapshot keeps the log from restarting between the two copies.
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        for name in (FILE_NAME, f"{FILE_NAME}-wal"):
            shutil.copy(folder / name, to / name)
    return to


def watched(
    before: Callable[[str], object] = lambda _: None, after: Callable[[str], object] = lambda _: None
) -> database.Connect:
    """Open connections that call these with each statement, before and after it; `before` may raise an error."""

    class Watched(database.StoreConnection):
        def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> sqlite3.Cursor:  # type: ignore[override]
            before(sql)
            cursor = super().execute(sql, parameters)
            after(sql)
            return cursor

        def executemany(self, sql: str, parameters: Any, /) -> sqlite3.Cursor:
            before(sql)
            return super().executemany(sql, parameters)

    return lambda path: database.open_for_service(path, Watched)


class Faulty:
    """Opens connections that fail at the statements that start with `fault`, like a full or failing disk."""

    def __init__(self) -> None:
        self.fault: str | tuple[str, ...] = ""
        self.in_truth = ""
        """What a COMMIT or ROLLBACK that fails has done."""
        self.hits = 0

    def connect(self, path: Path) -> sqlite3.Connection:
        disk = self

        class Connection(sqlite3.Connection):
            def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
                if disk.fault and sql.startswith(disk.fault):
                    disk.hits += 1
                    if disk.in_truth and sql in ("COMMIT", "ROLLBACK"):
                        super().execute(disk.in_truth)
                    raise sqlite3.OperationalError("database or disk is full")
                return super().execute(sql, *parameters)

        return database.open_for_service(path, Connection)
