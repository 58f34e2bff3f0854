"""Stored events, duplicates and traces as JSON documents, for the command line and the status page.

sqlite-utils is imported only when something is read, so that the service's start does not pay for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

from agent.store.facts import RECEIPTS_TABLE
from agent.store.fingerprints import fingerprint_rows
from agent.store.layout import FILE_NAME
from agent.store.read.events import Epochs
from agent.store.read.kept import KeptEvent
from agent.store.read.selection import ALL, Entry, Selection, select_between, select_latest
from agent.store.read.states import PROCESSED, States
from agent.store.read.trace import Trace, fingerprint_at, trace
from agent.store.schema import database, tables
from contract.record import encode_value
from contract.timestamp import rfc3339


def read_events(
    folder: Path, gateway: str, limit: int, selection: Selection = ALL, last: int | None = None
) -> Iterator[dict[str, object]]:
    """Yield the latest selected events, up to a position, in order; hold no transaction between two.

    Each has the record's keys and `state`.
    """
    from agent.store.read.connection import read_only

    with read_only(folder / FILE_NAME) as store:
        end = tables.last_position(store) if last is None else last
        for entry in select_latest(store, end, limit, selection):
            yield from _documents(entry, gateway)


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


def read_trace(folder: Path, gateway: str, fingerprint: bytes) -> list[dict[str, object]]:
    """Return the traces of the events with a fingerprint."""
    from agent.store.read.connection import read_only

    with read_only(folder / FILE_NAME) as store:
        table = tables.read_fact(store, RECEIPTS_TABLE)
        return [_trace_document(one, gateway, table) for one in trace(store, fingerprint)]


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


def _trace_document(one: Trace, gateway: str, table: str | None) -> dict[str, object]:
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
    if one.state == PROCESSED and table is not None:
        document["receipt"] = table
    document["copies"] = [rfc3339(received) for received in one.copies]
    return document
