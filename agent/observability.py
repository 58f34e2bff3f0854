"""Assembles the HTTP server's views from the parts of the agent: status, metrics, live view.

Imported only where HTTP is enabled: a gateway without it needs neither the time nor the memory that this takes.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from operator import itemgetter

from agent import release
from agent.certificates.expiry import certificates
from agent.clock import Clock
from agent.config.settings import Settings
from agent.http.metric_sources import Sources
from agent.http.views import Views
from agent.pipeline import Pipeline
from agent.status import GatewayStatus, LaneCounts, read_status
from agent.store.errors import FAILURES
from agent.store.files.folders import store_folders
from agent.store.lanes import LaneStores
from agent.store.layout import FILE_NAME
from agent.store.read.documents import RejectSelection, read_device, read_events, read_rejected, read_trace
from agent.store.schema import disk_space
from agent.telemetry.counters import Transport
from agent.telemetry.history import History, Totals
from agent.telemetry.links import OF_LANES, document_of
from agent.telemetry.process_state import ProcessState

SEARCHED_EVENTS_MAX = 20_000
"""How many of the latest events are searched for a device."""
FOUND_EVENTS_MAX = 50
DEVICES_SHOWN_MAX = 200


@dataclass(frozen=True, slots=True)
class Observation:
    """The views, and what they are fed by while the agent runs."""

    views: Views
    responses: Counter[int]
    """Responses of the HTTP server by their code, which the server counts and the metrics include."""
    history: History


def observe(
    settings: Settings,
    store: LaneStores,
    pipeline: Pipeline,
    clock: Clock,
    state: ProcessState,
    transports: Mapping[str, Transport],
) -> Observation:
    """Return the views of an agent."""
    history = History(lambda: _totals(store, pipeline), clock)
    views = AgentViews(settings, store, pipeline, clock, state, transports, history)
    return Observation(Views(views), views.responses, history)


def _totals(store: LaneStores, pipeline: Pipeline) -> Totals:
    events = store.totals()
    return Totals(
        accepted=sum(counts.accepted for counts in pipeline.counts.values()),
        sent=events.forwarded + events.processed,
        confirmed=events.processed,
        new=events.new,
        forwarded=events.forwarded,
        commits=store.commit_durations.cumulative()[-1][1],
        commit_seconds=store.commit_durations.total_seconds,
    )


class AgentViews:
    """Implements `ViewSources`; what reads the store does it beside the writer."""

    def __init__(
        self,
        settings: Settings,
        store: LaneStores,
        pipeline: Pipeline,
        clock: Clock,
        state: ProcessState,
        transports: Mapping[str, Transport],
        history: History,
    ) -> None:
        self.vias = tuple(pipeline.counts)
        self.responses: Counter[int] = Counter()
        self.feed = pipeline.activity.feed
        self.history = history.document
        self._folder = settings.gateway.state_dir
        self._gateway = settings.gateway.id
        self._settings = settings
        self._store = store
        self._pipeline = pipeline
        self._clock = clock
        self._state = state
        self._transports = transports
        self._started = clock.wall_ms()

    def trouble(self) -> str:
        """Return why nothing can be stored, or which transport refuses what the configuration lets in."""
        return self._store.trouble() or "; ".join(one.trouble for one in self._transports.values() if one.trouble)

    def metrics(self) -> tuple[str, bytes]:
        """Return media type and text for Prometheus."""
        from agent.http.metrics import read_metrics  # its client takes 0.8 MB: only where metrics are read

        store, pipeline = self._store, self._pipeline
        sources = Sources(
            counts=pipeline.counts,
            transports=self._transports,
            responses=self.responses,
            dangers=pipeline.warnings.counts,
            commits=lambda: store.commit_durations,
            outbox=store.counts,
            lanes=store.lane_counts,
            trouble=store.trouble,
            fill_ratio=store.fill_ratio,
            free_bytes=lambda: disk_space.free_bytes(self._folder / FILE_NAME),
            silent_devices=lambda: pipeline.activity.silent_devices(self._clock.wall_ms()),
            store_bytes=store.disk_bytes,
            store_bytes_max=store.bytes_max,
            log_bytes=self._log_bytes,
            written_bytes=store.written_bytes,
            status=self._status,
            clock=self._clock,
            links=self._state.links.reports,
            uplink=self._state.uplink,
            certificates=lambda: certificates(self._settings),
        )
        return read_metrics(sources)

    def _flush(self) -> None:
        """Write the counts of duplicates, which views read from the disk; where that fails, they show older ones."""
        with suppress(*FAILURES):
            self._store.flush()

    def _log_bytes(self) -> int:
        """Return the size of the write-ahead logs."""
        return sum(disk_space.log_bytes(folder / FILE_NAME) for folder in store_folders(self._folder).values())

    def _status(self) -> GatewayStatus:
        """Return the status, without the duplicates that are not written yet."""
        return replace(read_status(self._folder, self._gateway), requests=self._pipeline.refusals.recent())

    def current_status(self) -> GatewayStatus:
        """Return the status with all duplicates."""
        self._flush()
        return self._status()

    def trace(self, fingerprint: bytes) -> list[dict[str, object]]:
        """Return the traces of the events with a fingerprint."""
        self._flush()
        times = {lane: outbox.times for lane, outbox in self._store.outboxes.items()}
        return read_trace(self._folder, self._gateway, fingerprint, times)

    def device(self, device: str) -> dict[str, object]:
        """Return the data of the page of one device."""
        self._flush()
        return {
            "device": device,
            "now": self._clock.wall_ms(),
            "activity": self._pipeline.activity.device(device),
            "warnings": self._pipeline.warnings.advice(device),
            **read_device(self._folder, self._gateway, device),
        }

    def latest(self, text: str) -> list[Mapping[str, object]]:
        """Return the latest events of the devices whose name contains a text, newest first."""
        latest: list[Mapping[str, object]] = []
        for folder in store_folders(self._folder).values():
            events = read_events(folder, self._gateway, SEARCHED_EVENTS_MAX)
            found = (event for event in events if text.lower() in str(event.get("device", "")).lower())
            latest += reversed(deque(found, FOUND_EVENTS_MAX))
        if len(self._store.by_lane) > 1:
            latest.sort(key=itemgetter("received"), reverse=True)
        return latest[:FOUND_EVENTS_MAX]

    def rejected(self, selection: RejectSelection, limit: int) -> list[dict[str, object]]:
        """Return the latest rejected events that are selected."""
        return read_rejected(self._folder, selection, limit)

    def live(self) -> Mapping[str, object]:
        """Return the status page's data without its feed: the store's status, and what is in this process only."""
        found = self.current_status()
        return {
            "now": self._clock.wall_ms(),
            "started": self._started,
            "version": release.version(),
            "form": release.form(),
            "clock": self._clock.trust().value,
            "trouble": self._store.trouble(),
            "status": found.document(),
            "store_bytes_max": self._store.bytes_max,
            "written_bytes": self._store.written_bytes(),
            "links": document_of(self._state.links.reports()),
            "lanes": self._lanes(found.lanes),
            "uplink": self._uplink(),
            "devices": self._pipeline.activity.devices(DEVICES_SHOWN_MAX),
            "errors": self._state.recent_errors.errors(),
        }

    def _lanes(self, counts: Mapping[str, LaneCounts]) -> list[dict[str, object]]:
        """Return the lanes, the first to be sent first; empty without lanes."""
        lanes = [(name, lane) for name, lane in self._state.lanes.items() if name in counts]
        return [
            {
                "name": name,
                "priority": lane.priority,
                "new": counts[name].new,
                "oldest_new": counts[name].oldest_new,
                "links": {
                    link: report for link, report in document_of(lane.links.reports()).items() if link in OF_LANES
                },
            }
            for name, lane in sorted(lanes, key=lambda one: -one[1].priority)
        ]

    def _uplink(self) -> dict[str, object] | None:
        """Return the use of a capped uplink, and what waits for it; None without a cap."""
        if self._state.uplink is None:
            return None
        uplink, waiting = self._state.uplink.state(), self._store.counts().new
        return {**asdict(uplink), "waiting": waiting, "seconds_left": uplink.seconds_left(waiting)}
