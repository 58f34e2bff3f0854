"""What the views and the metrics read of the agent: status, counts, live view.

Imported only where HTTP is enabled: a gateway without it needs neither the time nor the memory that this takes.
"""

from collections import Counter, deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from operator import itemgetter

from agent import release
from agent.clock import Clock
from agent.config.settings import Settings
from agent.pipeline import Pipeline
from agent.status import GatewayStatus, LaneCounts, read_status
from agent.store.errors import FAILURES
from agent.store.files.folders import store_folders
from agent.store.lanes import LaneStores
from agent.store.read.documents import read_device, read_events, read_trace
from agent.telemetry.counters import Transport
from agent.telemetry.history import History, Totals
from agent.telemetry.links import OF_LANES, document_of, reports_of
from agent.telemetry.process_state import ProcessState

SEARCHED_EVENTS_MAX = 20_000
"""How many of the latest events are searched for a device."""
FOUND_EVENTS_MAX = 50
DEVICES_SHOWN_MAX = 200


@dataclass(eq=False)
class Sources:
    """The parts of the agent, as views and metrics read them; what reads the store blocks, beside the writer."""

    settings: Settings
    store: LaneStores
    pipeline: Pipeline
    clock: Clock
    state: ProcessState
    transports: Mapping[str, Transport]
    """By `via`."""
    responses: Counter[int] = field(default_factory=Counter)
    """Responses of the HTTP server by their code, which the server counts."""

    def __post_init__(self) -> None:
        self.history = History(lambda: _totals(self.store, self.pipeline), self.clock)
        self._folder, self._gateway = self.settings.gateway.state_dir, self.settings.gateway.id
        self._started = self.clock.wall_ms()

    def trouble(self) -> str:
        """Return why nothing can be stored, or which transport refuses what the configuration lets in."""
        return self.store.trouble() or "; ".join(one.trouble for one in self.transports.values() if one.trouble)

    def metrics(self) -> tuple[str, bytes]:
        from agent.http.metrics import read_metrics  # its client takes 0.8 MB: only where metrics are read

        return read_metrics(self)

    def _flush(self) -> None:
        """Write the counts of duplicates, which views read from the disk; where that fails, they show older ones."""
        with suppress(*FAILURES):
            self.store.flush()

    def status(self) -> GatewayStatus:
        """Return the status, without the duplicates that are not written yet."""
        return replace(read_status(self._folder, self._gateway), requests=self.pipeline.refusals.recent())

    def current_status(self) -> GatewayStatus:
        """Return the status with all duplicates."""
        self._flush()
        return self.status()

    def trace(self, fingerprint: bytes) -> list[dict[str, object]]:
        self._flush()
        times = {lane: outbox.times for lane, outbox in self.store.outboxes.items()}
        return read_trace(self._folder, self._gateway, fingerprint, times)

    def device(self, device: str) -> dict[str, object]:
        self._flush()
        return {
            "device": device,
            "now": self.clock.wall_ms(),
            "activity": self.pipeline.activity.device(device),
            "warnings": self.pipeline.warnings.advice(device),
            **read_device(self._folder, self._gateway, device),
        }

    def latest(self, text: str) -> list[Mapping[str, object]]:
        """Return the latest events of the devices whose name contains a text, newest first."""
        latest: list[Mapping[str, object]] = []
        for folder in store_folders(self._folder).values():
            events = read_events(folder, self._gateway, SEARCHED_EVENTS_MAX)
            found = (event for event in events if text.lower() in str(event.get("device", "")).lower())
            latest += reversed(deque(found, FOUND_EVENTS_MAX))
        if len(self.store.by_lane) > 1:
            latest.sort(key=itemgetter("received"), reverse=True)
        return latest[:FOUND_EVENTS_MAX]

    def live(self) -> Mapping[str, object]:
        """Return the status page's data without its feed: the store's status, and this process's own state."""
        found = self.current_status()
        return {
            "now": self.clock.wall_ms(),
            "started": self._started,
            "version": release.version(),
            "form": release.form(),
            "clock": self.clock.trust().value,
            "trouble": self.store.trouble(),
            "status": found.document(),
            "store_bytes_max": self.store.bytes_max,
            "written_bytes": self.store.written_bytes(),
            "links": document_of(reports_of(self.state.links)),
            "lanes": self._lanes(found.lanes),
            "uplink": self._uplink(),
            "devices": self.pipeline.activity.devices(DEVICES_SHOWN_MAX),
            "errors": self.state.recent_errors.errors(),
        }

    def _lanes(self, counts: Mapping[str, LaneCounts]) -> list[dict[str, object]]:
        """Return the lanes, the first to be sent first; empty without lanes."""
        return [
            {
                "name": name,
                "priority": priority,
                "new": counts[name].new,
                "oldest_new": counts[name].oldest_new,
                "links": document_of(
                    {link: one for link, one in self.state.links[name].reports().items() if link in OF_LANES}
                ),
            }
            for name, priority in sorted(self.state.priorities.items(), key=lambda one: -one[1])
            if name in counts
        ]

    def _uplink(self) -> dict[str, object] | None:
        """Return the use of a capped uplink, and what waits for it; None without a cap."""
        if self.state.uplink is None:
            return None
        uplink, waiting = self.state.uplink(), self.store.counts().new
        return {**asdict(uplink), "waiting": waiting, "seconds_left": uplink.seconds_left(waiting)}


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
