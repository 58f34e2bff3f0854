"""What the status page shows, gathered when it asks."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version

from agent.clock import Clock
from agent.status import Status
from agent.store.event_store import EventStore
from agent.telemetry.activity import LastWords, Watch
from agent.telemetry.links import Links

DEVICES_SHOWN_MAX = 200


class Live:
    """The gateway as it is now: the store's status, and what only this process knows."""

    def __init__(self, store: EventStore, clock: Clock, watch: Watch, words: LastWords, links: Links) -> None:
        self._store = store
        self._clock = clock
        self._watch = watch
        self._words = words
        self._links = links
        self._started = clock.wall()

    def document(self, status: Callable[[], Status]) -> dict[str, object]:
        """Give all but the feed, in JSON's types; blocks."""
        return {
            "now": self._clock.wall(),
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
        """Give what has happened since, the latest last; costs nothing."""
        return self._watch.feed(after)
