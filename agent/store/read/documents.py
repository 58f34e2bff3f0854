"""Stored events, duplicates, traces and rejected events as JSON documents, for the command line and the status page."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from fnmatch import translate
from glob import escape
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from agent.store.errors import DamagedStoreError, naming
from agent.store.facts import RECEIPTS_TABLE
from agent.store.files.folders import lane_folders, store_folders
from agent.store.fingerprints import fingerprint_rows, segments
from agent.store.fingerprints.transient import split
from agent.store.format.packing import unpack_readable
from agent.store.layout import FILE_NAME
from agent.store.port import Reject
from agent.store.progress import ForwardingTimes
from agent.store.read.events import Epochs, read_one
from agent.store.read.kept import (
    ALL,
    NEW,
    PROCESSED,
    Entry,
    KeptEvent,
    Selection,
    States,
    read_kept,
    select_between,
    select_latest,
)
from agent.store.schema import database, tables
from agent.store.schema.database import Reads, snapshot
from agent.store.schema.tables import EpochStart
from contract.record import encode_value, read_header_fields
from contract.timestamp import rfc3339

if TYPE_CHECKING:
    from sqlite_utils import Database

DUPLICATES_MAX = 100_000
"""How many of the latest duplicates are searched."""
DEVICE_EVENTS_MAX = 200
EVENTS_SEARCHED_MAX = 500_000
"""How many of the latest events `read_events` searches for selected ones: a few seconds on a gateway."""
DEVICE_POSITIONS_SEARCHED = 20_000
"""How many of the latest events of all devices are searched for one device."""
DEVICE_TAIL_BYTES_MAX = 4_096
"""The data of a longer event is left out of a list."""


@contextmanager
def read_only(path: Path) -> Iterator[Database]:
    """Open the store, also while the service writes; raise StoreError where there is none.

    The service reads only when its status page is searched, so that its start does not pay for sqlite-utils.
    """
    from sqlite_utils import Database

    with naming(path), closing(database.open_for_reading(path)) as connection:
        yield Database(connection, recursive_triggers=False, execute_plugins=False)


def read_events(
    folder: Path, gateway: str, limit: int, selection: Selection = ALL, last: int | None = None
) -> Iterator[dict[str, object]]:
    """Yield the selected ones of the latest EVENTS_SEARCHED_MAX events, up to a position, in order.

    Each has the record's keys and `state`. Hold no transaction between two.
    """
    with read_only(folder / FILE_NAME) as store:
        end = tables.last_position(store) if last is None else last
        for entry in select_latest(store, end, limit, selection, end - EVENTS_SEARCHED_MAX + 1):
            yield from _documents(entry, gateway)


def read_search_start(folder: Path, last: int) -> int | None:
    """Return when the first event that `read_events` searches was accepted; None where it searches all.

    In milliseconds since 1970 UTC by the gateway's clock.
    """
    first = last - EVENTS_SEARCHED_MAX + 1
    with closing(database.open_for_reading(folder / FILE_NAME)) as connection:
        oldest = tables.first_event(connection)
        if oldest is None or oldest >= first:
            return None
        entry = next(read_kept(connection, range(first, last + 1)), None)
        return None if entry is None else read_header_fields(entry.event.tail).received


def read_events_between(
    folder: Path, gateway: str, after: int, last: int, selection: Selection
) -> Iterator[dict[str, object]]:
    """Yield the selected events after a position up to another, in order; hold no transaction between two."""
    with read_only(folder / FILE_NAME) as store:
        for entry in select_between(store, after, last, selection):
            yield from _documents(entry, gateway)


def read_last_position(folder: Path) -> int:
    """Return the position of the latest event."""
    with closing(database.open_for_reading(folder / FILE_NAME)) as connection:
        return tables.last_position(connection)


def read_duplicates(folder: Path, limit: int) -> Iterator[dict[str, object]]:
    """Yield the latest duplicates, each with the event that it repeats."""
    with read_only(folder / FILE_NAME) as store:
        duplicates = fingerprint_rows.latest_duplicates(store, limit)
        epochs, states = Epochs.load(store), States(store)
        for duplicate in duplicates:
            label = epochs.label(duplicate.position)
            fingerprint = fingerprint_at(store, duplicate.position)
            yield {
                "received": duplicate.received,
                "fingerprint": None if fingerprint is None else fingerprint.hex(),
                "epoch": label.epoch,
                "sequence": label.sequence,
                "state": states.state(duplicate.position),
            }


def read_trace(
    state_folder: Path, gateway: str, fingerprint: bytes, times: Mapping[str, ForwardingTimes] | None = None
) -> list[dict[str, object]]:
    """Return the traces of a fingerprint in all lanes: several if the event arrived again after the retention.

    A store is searched a part at a time; its traces are of one snapshot after that. Only the running agent has the
    times of forwarding, by lane.
    """
    found: list[dict[str, object]] = []
    for lane, folder in store_folders(state_folder).items():
        with read_only(folder / FILE_NAME) as store:
            commits = commit_times(store, fingerprint)
            with snapshot(store):
                found += _traces(store, gateway, commits, (times or {}).get(lane, ForwardingTimes()))
    return found


def read_device(state_folder: Path, gateway: str, device: str) -> dict[str, object]:
    """Return the latest events of a device in order, their duplicates, and the ids that are missing among them.

    Those of several lanes are in the order of their acceptance.
    """
    events: list[dict[str, object]] = []
    duplicates: list[dict[str, object]] = []
    for folder in store_folders(state_folder).values():
        found, repeated = _device_events(folder, gateway, device)
        events += found
        duplicates += repeated
    if lane_folders(state_folder):
        events = sorted(events, key=itemgetter("received"))[-DEVICE_EVENTS_MAX:]
        duplicates.sort(key=itemgetter("received"))
    return {
        "events": events,
        "events_max": DEVICE_EVENTS_MAX,
        "positions_searched": DEVICE_POSITIONS_SEARCHED,
        "duplicates": duplicates,
        "missing_ids": missing_ids(events),
    }


def _device_events(folder: Path, gateway: str, device: str) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Return the latest events of a device in one store, in order, and their duplicates."""
    with read_only(folder / FILE_NAME) as store:
        end = tables.last_position(store)
        first = max(1, end - DEVICE_POSITIONS_SEARCHED + 1)
        entries = select_latest(store, end, DEVICE_EVENTS_MAX, Selection(escape(device)), first)
        kept = {one.event.position: one for one in entries if isinstance(one, KeptEvent)}
        duplicates = [one for one in fingerprint_rows.latest_duplicates(store, DUPLICATES_MAX) if one.position in kept]
    events = [_event_document(one, gateway) for one in kept.values()]
    for one, document in zip(kept.values(), events, strict=True):
        if len(one.event.tail) > DEVICE_TAIL_BYTES_MAX:
            document["data"] = None
            document.pop("ext", None)
    return events, [
        {"received": one.received, "fingerprint": kept[one.position].event.fingerprint.hex()} for one in duplicates
    ]


def _documents(entry: Entry, gateway: str) -> Iterator[dict[str, object]]:
    if isinstance(entry, KeptEvent):
        yield _event_document(entry, gateway)
    else:
        yield from ({"state": "damaged", **asdict(labels)} for labels in entry.labels)


def _event_document(kept: KeptEvent, gateway: str) -> dict[str, object]:
    event = kept.event
    document: dict[str, object] = json.loads(encode_value(event.fingerprint, gateway, event.label, event.tail))
    document["state"] = kept.state
    return document


def _traces(
    connection: Reads, gateway: str, commits: Mapping[int, int | None], times: ForwardingTimes
) -> list[dict[str, object]]:
    """Return the traces of the events at some positions, each given with the time of its commit."""
    epochs, states = Epochs.load(connection), States(connection)
    table = tables.read_fact(connection, RECEIPTS_TABLE)
    latest = fingerprint_rows.latest_duplicates(connection, DUPLICATES_MAX)
    found: list[dict[str, object]] = []
    for position, committed in commits.items():
        label, state = epochs.label(position), states.state(position)
        document: dict[str, object] = {"epoch": label.epoch, "sequence": label.sequence, "state": state}
        if committed is not None:
            document["committed"] = rfc3339(committed)
        if (event := read_one(connection, position)) is not None:
            value = json.loads(encode_value(event.fingerprint, gateway, label, event.tail))
            document |= {"accepted": rfc3339(value["received"]), "clock": event.clock.value, "event": value}
        if (batch := states.coverage.batch(position)) is not None:
            document["topic_id"] = batch.topic_id
            # Of the whole batch: the gateway does not keep the offsets of single events.
            document["batch_offsets"] = {
                str(number): [offsets.lowest, offsets.highest] for number, offsets in batch.partitions.items()
            }
        forwarded, processed = times.of(position)
        if forwarded is not None and state != NEW:
            document["forwarded"] = rfc3339(forwarded)
        if processed is not None and state == PROCESSED:
            document["processed"] = rfc3339(processed)
        if state == PROCESSED and table is not None:
            document["receipt"] = table
        document["duplicates"] = [rfc3339(one.received) for one in latest if one.position == position]
        found.append(document)
    return found


def fingerprint_at(connection: Reads, position: int) -> bytes | None:
    """Return the fingerprint that is remembered for a position."""
    for row in fingerprint_rows.rows_between(connection, position, position):
        fingerprints = dict(enumerate(split(row.fingerprints), row.first_position))
        if position in fingerprints:
            return fingerprints[position]
    for segment, _ in segments.load_segments(connection):
        if segment.first <= position <= segment.last:
            for entry in segments.entries(connection, segment.number):
                if entry.position == position:
                    return entry.fingerprint
    return None


def commit_times(connection: Reads, fingerprint: bytes) -> dict[int, int | None]:
    """Return the positions of the events with a fingerprint, in order, each with the time of its commit.

    In milliseconds since 1970 UTC by the clock of the opening, right or wrong, and some seconds too early once the
    fingerprint is sealed; None where it is forgotten: a kept event may outlive it.
    """
    epochs = tables.load_epochs(connection)
    found: dict[int, int | None] = {}
    columns = "first_position, service_ms, packed"
    for first_position, service_ms, packed in tables.search(connection, "fingerprints", columns, fingerprint):
        for place, piece in enumerate(split(packed)):
            if piece == fingerprint:
                found[first_position + place] = _commit_time(epochs, first_position, service_ms)
    for segment, _ in segments.load_segments(connection):
        entry = segments.find(connection, segment.number, fingerprint)
        if entry is not None:
            found.setdefault(entry.position, _commit_time(epochs, entry.position, entry.service_ms))
    for commit in tables.search(connection, "events", "first_position, count, packed", fingerprint):
        for event in unpack_readable(*commit):
            if event.fingerprint == fingerprint:
                found.setdefault(event.position, None)
    return dict(sorted(found.items()))


def _commit_time(epochs: list[tuple[int, EpochStart]], position: int, service_ms: int) -> int:
    start = tables.epoch_of(epochs, position)
    if start is None:
        raise DamagedStoreError(f"position {position}: it belongs to no epoch")
    return start.wall_ms + service_ms - start.service_ms


def missing_ids(events: Iterable[Mapping[str, object]]) -> list[dict[str, object]]:
    """Return the ids that are missing between the lowest and the highest one of each boot, as ranges.

    Ids of which less than half occur are no counter, such as times or random numbers.
    """
    ids: defaultdict[int | str | None, set[int]] = defaultdict(set)
    for event in events:
        id_, boot = event.get("id"), event.get("boot")
        if isinstance(id_, int) and (boot is None or isinstance(boot, int | str)):
            ids[boot].add(id_)
    return [
        {"boot": boot, "first": before + 1, "last": after - 1}
        for boot, found in ids.items()
        if 2 * len(found) > max(found) - min(found)
        for before, after in pairwise(sorted(found))
        if after > before + 1
    ]


@dataclass(frozen=True, slots=True)
class RejectSelection:
    """Which rejected events are selected; an empty value or None selects all."""

    via: str = ""
    device: str = "*"
    """A glob pattern."""
    reason: str = ""
    """A part of the reason, in any case."""
    number: int | None = None
    before: int | None = None
    """Only those with a lower number."""

    def select(self, rejects: Iterable[tuple[int, Reject]]) -> list[tuple[int, Reject]]:
        pattern = translate(unicodedata.normalize("NFC", self.device))
        is_of_device = re.compile(pattern).match  # fnmatchcase would keep 32,768 patterns in its cache
        reason = self.reason.lower()
        return [
            (number, reject)
            for number, reject in rejects
            if (not self.via or reject.via == self.via)
            and is_of_device(unicodedata.normalize("NFC", reject.device))  # a topic may not be in it
            and reason in reject.reason.lower()
            and self.number in (None, number)
            and (self.before is None or number < self.before)
        ]


def read_rejected(folder: Path, selection: RejectSelection, limit: int) -> list[dict[str, object]]:
    """Return the latest selected rejected events, newest first; `raw` holds the first bytes as hex digits."""
    with closing(database.open_for_reading(folder / FILE_NAME)) as connection:
        rejects = tables.load_rejects(connection)
    wanted = selection.select(rejects)
    return [
        {
            "number": number,
            "received": reject.received,
            "device": reject.device,
            "via": reject.via,
            "reason": reject.reason,
            "raw": reject.raw.hex(),
        }
        for number, reject in reversed(wanted[-limit:])
    ]
