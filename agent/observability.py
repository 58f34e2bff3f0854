"""What the HTTP server shows, put together from the parts of the agent: status, metrics, the page's live view."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from importlib.metadata import version

from agent.clock import Clock
from agent.config.settings import GatewaySettings
from agent.http.metrics import Metrics, Sources
from agent.http.views import Looks, Views
from agent.pipeline import Pipeline
from agent.status import Status, read_status
from agent.store.event_store import EventStore
from agent.store.layout import FILE_NAME
from agent.store.read.documents import read_events, read_trace
from agent.store.schema import disk_space
from agent.telemetry.activity import LastWords, Watch
from agent.telemetry.links import Links

SEARCHED_EVENTS_MAX = 20_000
"""How many of the latest events are searched for a device."""
FOUND_EVENTS_MAX = 50
DEVICES_SHOWN_MAX = 200


def observe(
    gateway: GatewaySettings,
    store: EventStore,
    pipeline: Pipeline,
    clock: Clock,
    words: LastWords,
    links: Links,
    transport_duplicates: Mapping[str, Callable[[], int]],
) -> tuple[Views, Counter[int]]:
    """Put the views together; the counter is for the server's responses, which the metrics show."""
    folder, name = gateway.state_dir, gateway.id
    responses: Counter[int] = Counter()
    live = Live(store, clock, pipeline.watch, words, links)

    def status() -> Status:
        return read_status(folder, name)

    def latest(device: str) -> list[Mapping[str, object]]:
        events = read_events(folder, name, SEARCHED_EVENTS_MAX)
        found = (event for event in events if device.lower() in str(event.get("device", "")).lower())
        return list(reversed(deque(found, FOUND_EVENTS_MAX)))

    sources = Sources(
        tallies=pipeline.tallies,
        transport_duplicates=transport_duplicates,
        responses=responses,
        dangers=pipeline.warnings.counts,
        commits=store.commit_durations,
        outbox=store.counts,
        store_bytes=store.bytes_on_disk,
        store_bytes_max=store.bytes_max,
        log_bytes=lambda: disk_space.log_bytes(folder / FILE_NAME),
        written_bytes=store.written_bytes,
        status=status,
        clock=clock,
        links=links.reports,
    )
    looks = Looks(
        trouble=store.trouble,
        status=status,
        metrics=Metrics(sources).text,
        live=lambda: live.document(status),
        feed=live.feed,
        trace=lambda fingerprint: read_trace(folder, name, fingerprint),
        latest=latest,
    )
    return Views(looks), responses


class Live:
    """The status page's live view: the store's status, and what only this process knows."""

    def __init__(self, store: EventStore, clock: Clock, watch: Watch, words: LastWords, links: Links) -> None:
        self._store = store
        self._clock = clock
        self._watch = watch
        self._words = words
        self._links = links
        self._started = clock.wall_ms()

    def document(self, status: Callable[[], Status]) -> dict[str, object]:
        """Return all but the feed as a JSON document; blocks."""
        return {
            "now": self._clock.wall_ms(),
            "started": self._started,
            "version": version("oncegate"),
            "clock": self._clock.trust().value,
            "trouble": self._store.trouble(),
            "status": status().document(),
            "store_bytes_max": self._store.bytes_max,
            "written_bytes": self._store.written_bytes(),
            "links": self._links.document(),
            "devices": self._watch.devices(DEVICES_SHOWN_MAX),
            "errors": self._words.errors(),
        }

    def feed(self, after: int) -> list[dict[str, object]]:
        """Return what has happened since, the latest last; does not block."""
        return self._watch.feed(after)
