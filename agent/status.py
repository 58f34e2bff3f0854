"""The status of the store, read with or without the running service."""

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from agent import release
from agent.config.lanes import DEFAULT_LANE
from agent.forward.facts import read_hold, read_in_doubt, read_oversized
from agent.mqtt.session import read_session
from agent.store import facts
from agent.store.counts import EventCounts
from agent.store.errors import naming
from agent.store.files.folders import store_folders
from agent.store.fingerprints import fingerprint_rows
from agent.store.gateway_events import read_untrusted_clock
from agent.store.layout import FILE_NAME
from agent.store.progress import Progress
from agent.store.read.events import Epochs, read_one
from agent.store.read.kept import States
from agent.store.schema import database, disk_space, gaps, tables
from agent.telemetry.refusals import RecentRequests
from contract.record import read_header_fields


@dataclass(frozen=True, slots=True)
class LaneCounts(EventCounts):
    """The events of one lane by state."""

    oldest_new: int | None = None
    """When the oldest event was accepted that no broker has, in milliseconds since 1970 UTC."""


@dataclass(frozen=True, slots=True)
class GatewayStatus:
    """The status of the store; of a running agent without the duplicates that are not written yet."""

    gateway: str
    accepted: int
    """Events of sensors since the store was created."""
    duplicates: int
    rejected: int
    events: EventCounts
    epochs: int
    epoch: str | None
    sequence: int
    store_bytes: int
    oldest_unprocessed: int | None
    """When the oldest event was accepted that the table does not have, in milliseconds since 1970 UTC."""
    oldest_new: int | None
    """The same for the oldest event that no broker has."""
    oldest_forwarded: int | None
    """The same for the oldest event that waits for its receipt."""
    table: str | None
    """The table whose receipts count; None before the first."""
    forwarding_stopped: str = ""
    """Why nothing is forwarded until the next start; empty where events are forwarded."""
    receipts_held: str = ""
    """Why the group's commits do not count as receipts; empty where they do."""
    receipts_held_since: int | None = None
    """Since when, in milliseconds since 1970 UTC."""
    oversized: int = 0
    """Events held since Kafka refuses them for their size, as of the last try."""
    oversized_since: int | None = None
    """When the first of them was refused, in milliseconds since 1970 UTC."""
    oversized_bytes: int | None = None
    """The size of the smallest of them, which Kafka would have to accept."""
    log_bytes: int = 0
    """The size of the store's write-ahead log, which grows while a reader does not end."""
    maybe_lost: int = 0
    """Events sent at most once that were in flight when it became unknown whether they arrived."""
    mqtt_sessions_lost: int = 0
    """How often the MQTT broker had lost the agent's session, with the messages in it, since the store was created."""
    mqtt_session_lost_at: int | None = None
    """The last time, in milliseconds since 1970 UTC."""
    forgotten_early: int = 0
    """Fingerprints that were forgotten before the end of their retention, since they took too much of the store."""
    lanes: Mapping[str, LaneCounts] = field(default_factory=dict)
    """The events of each lane by state; empty without lanes."""
    requests: RecentRequests | None = None
    """Those of the last minutes, and why some were refused; None where no agent runs."""

    def document(self) -> dict[str, object]:
        """Return the status in JSON's types, with the release of the program that read it."""
        return {"version": release.version(), "form": release.form(), **asdict(self)}


def read_status(state_folder: Path, gateway: str) -> GatewayStatus:
    """Read the status of the store, of all its lanes together; raise StoreError where there is none."""
    found = {lane: read_store(folder, gateway) for lane, folder in store_folders(state_folder).items()}
    default = found[DEFAULT_LANE]
    return default if len(found) == 1 else _together(default, found)


def read_store(folder: Path, gateway: str) -> GatewayStatus:
    """Read the status of a single store; raise StoreError where there is none."""
    path = folder / FILE_NAME
    with naming(path), closing(database.open_for_reading(path)) as connection, database.snapshot(connection):
        return _read(connection, path, gateway)


def _together(default: GatewayStatus, lanes: Mapping[str, GatewayStatus]) -> GatewayStatus:
    """Return the status of all lanes together; the latest label is that of the default lane."""
    every = lanes.values()
    changes: dict[str, Any] = {name: sum(getattr(one, name) for one in every) for name in _SUMS}
    for name in _FIRSTS:
        known = [value for one in every if (value := getattr(one, name)) is not None]
        changes[name] = min(known, default=None)
    for name in _REASONS:
        reasons = [f"lane {lane}: {text}" for lane, one in lanes.items() if (text := getattr(one, name))]
        changes[name] = "; ".join(reasons)
    of_lanes = {lane: LaneCounts(**asdict(one.events), oldest_new=one.oldest_new) for lane, one in lanes.items()}
    return replace(default, events=EventCounts.total(one.events for one in every), lanes=of_lanes, **changes)


_SUMS = (
    *("accepted", "duplicates", "rejected", "epochs", "store_bytes", "oversized", "log_bytes", "maybe_lost"),
    "forgotten_early",
)
_FIRSTS = (
    *("oldest_unprocessed", "oldest_new", "oldest_forwarded"),
    *("receipts_held_since", "oversized_since", "oversized_bytes"),
)
_REASONS = ("forwarding_stopped", "receipts_held")


def _read(connection: sqlite3.Connection, path: Path, gateway: str) -> GatewayStatus:
    epochs = Epochs.load(connection)
    end = tables.last_position(connection)
    first = tables.first_event(connection) or end + 1
    states = States(connection)
    progress = Progress(states.coverage, end, states.lost)
    new, _ = progress.next_new(first - 1) or (None, None)
    forwarded = next((max(batch.first, first) for batch in progress.forwarded() if batch.last >= first), None)
    unprocessed = min((position for position in (new, forwarded) if position is not None), default=None)
    fact = partial(tables.read_fact, connection)
    held = read_oversized(fact(facts.OVERSIZED)).values()
    hold = read_hold(fact(facts.RECEIPTS_HELD))
    openings = tables.load_epochs(connection)
    last = epochs.last()
    session = read_session(fact(facts.MQTT_SESSION))
    declared = gaps.count_declarations(connection) + read_untrusted_clock(fact(facts.CLOCK_UNTRUSTED)).declared
    own = len(openings) + tables.read_count(connection, facts.CHECKPOINTS) + declared
    return GatewayStatus(
        gateway=gateway,
        accepted=end - own,
        duplicates=fingerprint_rows.count_duplicates(connection),
        rejected=tables.count_rejects(connection),
        events=progress.counts(first),
        epochs=len(openings),
        epoch=None if last is None else last[1],
        sequence=0 if last is None else end - last[0] + 1,
        store_bytes=database.disk_bytes(path),
        oldest_unprocessed=_received(connection, unprocessed),
        oldest_new=_received(connection, new),
        oldest_forwarded=_received(connection, forwarded),
        table=fact(facts.RECEIPTS_TABLE),
        forwarding_stopped=fact(facts.FORWARDER_STOPPED) or "",
        receipts_held="" if hold is None else hold.reason,
        receipts_held_since=None if hold is None else hold.since,
        oversized=len(held),
        oversized_since=min((one.since for one in held), default=None),
        oversized_bytes=min((one.size for one in held), default=None),
        log_bytes=disk_space.log_bytes(path),
        maybe_lost=read_in_doubt(fact(facts.IN_DOUBT)).lost_max,
        mqtt_sessions_lost=0 if session is None else session.lost,
        mqtt_session_lost_at=None if session is None else session.lost_at,
        forgotten_early=tables.read_count(connection, facts.FORGOTTEN_EARLY),
    )


def _received(connection: sqlite3.Connection, position: int | None) -> int | None:
    """Return when the event at a position was accepted, None where there is none that can be read."""
    event = None if position is None else read_one(connection, position)
    return None if event is None else read_header_fields(event.tail).received
