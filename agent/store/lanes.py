"""Lanes: a store for each, as one store, and the intake that divides deliveries among them (decision 76)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from types import TracebackType
from typing import Final, Self

from agent.clock import Clock
from agent.config.lanes import DEFAULT_LANE, LANE_SHARE, LANES_MAX, Lane
from agent.config.origins import settings_hash
from agent.config.settings import Settings
from agent.store.counts import EventCounts
from agent.store.event_store import EventStore
from agent.store.files.folders import LANES_FOLDER, foreign_folders, lane_folders
from agent.store.outbox import StoreOutbox
from agent.store.port import Intake, Outcome, Submission
from agent.store.write.transaction import CommitDurations

_KINDS_KEPT: Final = 4_096
"""How many pairs of device and type have their lane in memory."""

_log = logging.getLogger(__name__)


def lane_stores(settings: Settings, clock: Clock) -> LaneStores:
    """Return the stores of the lanes that are configured, or were before and have their store left."""
    folder, lanes = settings.gateway.state_dir, settings.forward.lanes
    names = dict.fromkeys([*(lane.name for lane in lanes), *lane_folders(folder)])
    for foreign in foreign_folders(folder):
        _log.warning("lanes=foreign folder=%s effect=%r", foreign, "not used: no lane can have this name")
    share_bytes = settings.store.max_bytes // LANE_SHARE
    # What is left of lanes that are no longer configured counts, too, up to the number that can be configured.
    shares = min(len(names), LANES_MAX)
    rest = replace(settings.store, max_bytes=settings.store.max_bytes - share_bytes * shares)
    of_lane = replace(settings.store, max_bytes=share_bytes)
    gateway, identity = settings.gateway.id, settings.identity
    stated = settings_hash(settings)
    stores = {DEFAULT_LANE: EventStore(folder, gateway, rest, identity, clock, settings_hash=stated)}
    for name in names:
        parts = (folder / LANES_FOLDER / name, gateway, of_lane, identity, clock)
        stores[name] = EventStore(*parts, lane=name, settings_hash=stated)
    return LaneStores(stores, lanes)


class LaneStores:
    """The store of each lane, by the lane's name."""

    def __init__(self, stores: Mapping[str, EventStore], lanes: Sequence[Lane] = ()) -> None:
        self.by_lane = stores
        self._lanes = lanes
        self._default = stores[DEFAULT_LANE]
        self._others = [store for store in stores.values() if store is not self._default]

    async def __aenter__(self) -> Self:
        """Open all stores, which may take seconds where they are large."""
        async with AsyncExitStack() as stack:
            for store in self.by_lane.values():
                await stack.enter_async_context(store)
            self._opened = stack.pop_all()
        return self

    async def __aexit__(self, *exception: type[BaseException] | BaseException | TracebackType | None) -> None:
        """Close all stores, each as its own `__aexit__` does."""
        await self._opened.aclose()

    @property
    def intake(self) -> Intake:
        """The store as the pipeline uses it."""
        return LaneIntake(self._lanes, self.by_lane) if self._lanes else self._default

    @property
    def outboxes(self) -> Mapping[str, StoreOutbox]:
        return {name: store.outbox for name, store in self.by_lane.items()}

    @property
    def failures(self) -> list[asyncio.Future[None]]:
        """The errors that end the stores' writers, where no end was requested."""
        return [store.failed for store in self.by_lane.values()]

    def add_transport(self, duplicates: Callable[[], int], forget_answers: Callable[[], None]) -> None:
        """Register a transport, as `EventStore.add_transport` does; its duplicates are counted in the default lane."""
        self._default.add_transport(duplicates, forget_answers)
        for store in self._others:
            store.add_transport(int, forget_answers)

    def trouble(self, *, trial: bool = False) -> str:
        """Return why no event of some lane can be stored now, as `EventStore.trouble` does; empty where all can."""
        for lane, store in self.by_lane.items():
            if trouble := store.trouble(trial=trial):
                return f"lane {lane}, {trouble}" if self._others else trouble
        return ""

    def flush(self) -> None:
        """Write what waits for a transaction, as `EventStore.flush` does; blocks."""
        for store in self.by_lane.values():
            store.flush()

    async def barrier(self) -> None:
        """Wait for an iteration of each store's writer."""
        for store in self.by_lane.values():
            await store.barrier()

    def counts(self) -> EventCounts:
        """Count the events that are new, forwarded, processed and still kept, and lost."""
        return EventCounts.total(store.counts() for store in self.by_lane.values())

    def totals(self) -> EventCounts:
        """Count the same, with all events processed since the stores were created."""
        return EventCounts.total(store.totals() for store in self.by_lane.values())

    def lane_counts(self) -> dict[str, EventCounts]:
        """Count the events of each lane by state; empty without lanes."""
        return {name: store.counts() for name, store in self.by_lane.items()} if self._others else {}

    def disk_bytes(self) -> int:
        return sum(store.disk_bytes() for store in self.by_lane.values())

    def fill_ratio(self) -> float:
        """Return the used part of the bound, of the fullest lane."""
        return max(store.disk_bytes() / store.bytes_max for store in self.by_lane.values())

    def written_bytes(self) -> int:
        """Return the bytes that the agent has written since the default lane's store was created: each counts all."""
        return self._default.written_bytes()

    @property
    def bytes_max(self) -> int:
        return sum(store.bytes_max for store in self.by_lane.values())

    @property
    def commit_durations(self) -> CommitDurations:
        """How long the commits of all stores took, since the start."""
        return CommitDurations.total([store.commit_durations for store in self.by_lane.values()])


class LaneIntake:
    """Implements `port.Intake`: an event goes to the first lane whose patterns match, else to the default lane.

    Both patterns are on what is part of an event's identity, so that a resend goes to the lane of its original.
    """

    def __init__(self, lanes: Sequence[Lane], stores: Mapping[str, Intake]) -> None:
        self._stores = stores
        self._lane_of = lru_cache(maxsize=_KINDS_KEPT)(lambda device, type_: _lane_of(lanes, device, type_))

    def submit(self, submission: Submission) -> None:
        """Store a submission (Intake): as a whole in one lane, or divided among several."""
        candidates = submission.candidates
        places: dict[str, list[int]] = {}
        for place, candidate in enumerate(candidates):
            places.setdefault(self._lane_of(candidate.event.device, candidate.event.type), []).append(place)
        if submission.rejects or not candidates:
            places.setdefault(DEFAULT_LANE, [])  # the default lane keeps all that is rejected
        if len(places) == 1:
            self._stores[next(iter(places))].submit(submission)
            return
        joined = JoinedOutcome(submission, list(places.values()))
        for part, (lane, of_lane) in enumerate(places.items()):
            divided = tuple([candidates[place] for place in of_lane])
            rejects = submission.rejects if lane == DEFAULT_LANE else ()
            key, done, uptime_ms = submission.retransmission_key, partial(joined.add, part), submission.uptime_ms
            self._stores[lane].submit(Submission(divided, rejects, key, done, uptime_ms, True, submission.refusal))


class JoinedOutcome:
    """The outcome of a divided submission: durable once all parts are, refused where one is."""

    def __init__(self, submission: Submission, places: Sequence[Sequence[int]]) -> None:
        self._submission = submission
        self._places = places
        self._outcomes: dict[int, Outcome] = {}

    def add(self, part: int, outcome: Outcome) -> None:
        """Note the outcome of a part; the last one answers the submission."""
        self._outcomes[part] = outcome
        if len(self._outcomes) == len(self._places):
            self._submission.done(self._join())

    def _join(self) -> Outcome:
        outcomes = [self._outcomes[part] for part in range(len(self._places))]
        count = len(self._submission.candidates)
        fingerprints, new = [b""] * count, [False] * count
        for places, outcome in zip(self._places, outcomes, strict=True):
            for at, place in enumerate(places):
                fingerprints[place] = b"" if outcome.refusal else outcome.fingerprints[at]
                new[place] = bool(outcome.new) and outcome.new[at]
        refused = [outcome for outcome in outcomes if outcome.refusal]
        if refused:
            worst = max(refused, key=lambda outcome: outcome.retry_seconds)
            return Outcome(refusal=worst.refusal, retry_seconds=worst.retry_seconds, new=tuple(new))
        suspected = [fingerprint for outcome in outcomes for fingerprint in outcome.suspected]
        accepted = sum(outcome.accepted for outcome in outcomes)
        duplicates = sum(outcome.duplicates for outcome in outcomes)
        return Outcome(accepted, duplicates, tuple(fingerprints), tuple(new), tuple(suspected))


def _lane_of(lanes: Sequence[Lane], device: str, type_: str) -> str:
    matching = (lane.name for lane in lanes if fnmatchcase(device, lane.device) and fnmatchcase(type_, lane.type))
    return next(matching, DEFAULT_LANE)
