"""Stored events, duplicates and traces as JSON documents, for the command line and the status page.

sqlite-utils is imported only when something is read, so that the service's start does not pay for it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from glob import escape
from itertools import pairwise
from operator import itemgetter
from pathlib import Path

from agent.store.facts import RECEIPTS_TABLE
from agent.store.files.folders import lane_folders, store_folders
from agent.store.fingerprints import fingerprint_rows
from agent.store.forwarding_times import ForwardingTimes
from agent.store.layout import FILE_NAME
from agent.store.read.events import Epochs
from agent.store.read.kept import NEW, PROCESSED, KeptEvent, States, read_kept
from agent.store.read.selection import ALL, Entry, Selection, select_between, select_latest
from agent.store.read.trace import DUPLICATES_MAX, Trace, fingerprint_at, trace
from agent.store.schema import database, tables
from contract.record import encode_value, read_header_fields
from contract.timestamp import rfc3339

DEVICE_EVENTS_MAX = 200
EVENTS_SEARCHED_MAX = 500_000
"""How many of the latest events `read_events` searches for selected ones: a few seconds on a gateway."""
DEVICE_POSITIONS_SEARCHED = 20_000
"""How many of the latest events of all devices are searched for one device."""
DEVICE_TAIL_BYTES_MAX = 4_096
"""The data of a longer event is left out of a list."""


def read_events(
    folder: Path, gateway: str, limit: int, selection: Selection = ALL, last: int | None = None
) -> Iterator[dict[str, object]]:
    """Yield the selected ones of the latest EVENTS_SEARCHED_MAX events, up to a position, in order.

    Each has the record's keys and `state`. Hold no transaction between two.
    """
    from agent.store.read.connection import read_only

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
    from agent.store.read.connection import read_only

    with read_only(folder / FILE_NAME) as store:
        for entry in select_between(store, after, last, selection):
            yield from _documents(entry, gateway)


def read_last_position(folder: Path) -> int:
    """Return the position of the latest event."""
    with closing(database.open_for_reading(folder / FILE_NAME)) as connection:
        return tables.last_position(connection)


def read_duplicates(folder: Path, limit: int) -> Iterator[dict[str, object]]:
    """Yield the latest duplicates, each with the event that it repeats."""
    from agent.store.read.connection import read_only

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
    """Return the traces of the events with a fingerprint, in all lanes.

    Only the running agent has the times of forwarding, by lane.
    """
    from agent.store.read.connection import read_only

    found: list[dict[str, object]] = []
    for lane, folder in store_folders(state_folder).items():
        of_lane = (times or {}).get(lane, ForwardingTimes())
        with read_only(folder / FILE_NAME) as store:
            table = tables.read_fact(store, RECEIPTS_TABLE)
            found += [_trace_document(one, gateway, table, of_lane) for one in trace(store, fingerprint)]
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
        "missing_ids": [asdict(one) for one in missing_ids(events)],
    }


def _device_events(folder: Path, gateway: str, device: str) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Return the latest events of a device in one store, in order, and their duplicates."""
    from agent.store.read.connection import read_only

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


def _trace_document(one: Trace, gateway: str, table: str | None, times: ForwardingTimes) -> dict[str, object]:
    document: dict[str, object] = {"epoch": one.label.epoch, "sequence": one.label.sequence, "state": one.state}
    if one.committed is not None:
        document["committed"] = rfc3339(one.committed)
    if one.event is not None:
        value = json.loads(encode_value(one.event.fingerprint, gateway, one.event.label, one.event.tail))
        document |= {"accepted": rfc3339(value["received"]), "clock": one.event.clock.value, "event": value}
    if one.batch is not None:
        document["topic_id"] = one.batch.topic_id
        # Of the whole batch: the gateway does not keep the offsets of single events.
        document["batch_offsets"] = {
            str(number): [offsets.lowest, offsets.highest] for number, offsets in one.batch.partitions.items()
        }
    forwarded, processed = times.of(one.position)
    if forwarded is not None and one.state != NEW:
        document["forwarded"] = rfc3339(forwarded)
    if processed is not None and one.state == PROCESSED:
        document["processed"] = rfc3339(processed)
    if one.state == PROCESSED and table is not None:
        document["receipt"] = table
    document["duplicates"] = [rfc3339(received) for received in one.duplicates]
    return document


@dataclass(frozen=True, slots=True)
class MissingIds:
    """The ids from first to last, of which no event was found; `boot` is that of the events around them."""

    boot: int | str | None
    first: int
    last: int


def missing_ids(events: Iterable[Mapping[str, object]]) -> list[MissingIds]:
    """Return the ids that are missing between the lowest and the highest one of each boot.

    Ids of which less than half occur are no counter, such as times or random numbers.
    """
    ids: defaultdict[int | str | None, set[int]] = defaultdict(set)
    for event in events:
        id_, boot = event.get("id"), event.get("boot")
        if isinstance(id_, int) and (boot is None or isinstance(boot, int | str)):
            ids[boot].add(id_)
    return [
        MissingIds(boot, before + 1, after - 1)
        for boot, found in ids.items()
        if 2 * len(found) > max(found) - min(found)
        for before, after in pairwise(sorted(found))
        if after > before + 1
    ]
