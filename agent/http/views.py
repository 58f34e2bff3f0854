"""What the gateway shows of itself: alive, ready, status, metrics."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, TypeVar

from agent.http.access import Access
from agent.http.events import ReadBody
from agent.http.head import Head
from agent.http.reply import Reply, document, refusal, retry_after
from agent.http.site import Resources
from agent.store.database import StoreError

FRESH_SECONDS = 1.0
"""How old a view may be: so much work at most do readers make, however many ask."""
VIEW_SECONDS_MAX = 10.0
RETRY_SECONDS = 10

T = TypeVar("T")


class Recent(Generic[T]):
    """The result of work that blocks, done in a thread, and shared by all who ask within a second."""

    def __init__(self, look: Callable[[], T]) -> None:
        self._look = look
        self._begun = 0.0
        self._work: asyncio.Task[T] | None = None

    async def get(self) -> T:
        """Give the result; raise Refusal where there is none in time: the work goes on for those who ask later."""
        now = asyncio.get_running_loop().time()
        if self._work is None or (self._work.done() and now - self._begun > FRESH_SECONDS):
            self._begun = now
            self._work = asyncio.create_task(asyncio.to_thread(self._look), name="http-view")
        try:
            async with asyncio.timeout(VIEW_SECONDS_MAX):
                return await asyncio.shield(self._work)
        except (OSError, StoreError, sqlite3.Error) as error:  # a TimeoutError is an OSError
            message = f"this cannot be read now: {str(error) or 'it takes too long'}"
            raise refusal(503, "unavailable", message, retry_after(RETRY_SECONDS)) from error


class Views:
    """The resources to be read; what is given may block.

    `trouble` says why nothing can be stored, `status` is the document of `oncegate status --json`, `metrics` gives
    the media type and the text for Prometheus.
    """

    def __init__(
        self,
        trouble: Callable[[], str],
        status: Callable[[], Mapping[str, object]],
        metrics: Callable[[], tuple[str, bytes]],
    ) -> None:
        self._trouble = Recent(trouble)
        self._status = Recent(status)
        self._metrics = Recent(metrics)

    def resources(self, access: Access) -> Resources:
        """Lay out the resources; alive and ready are for everybody, since what asks for them has no token."""

        def readers_only(view: Callable[[], Awaitable[Reply]]) -> Callable[[Head, ReadBody], Awaitable[Reply]]:
            async def serve(head: Head, _: ReadBody) -> Reply:
                access.check_reader(head)
                return await view()

            return serve

        return {
            "/healthz": {"GET": _alive},
            "/readyz": {"GET": self._show_readiness},
            "/api/v1/status": {"GET": readers_only(self._show_status)},
            "/metrics": {"GET": readers_only(self._show_metrics)},
        }

    async def _show_readiness(self, _: Head, __: ReadBody) -> Reply:
        """Say whether an event could be stored; the log has the details of why not."""
        trouble = await self._trouble.get()
        if trouble:
            raise refusal(503, "not ready", trouble.partition(":")[0], retry_after(RETRY_SECONDS))
        return document(200, {"ready": True})

    async def _show_status(self) -> Reply:
        return document(200, await self._status.get())

    async def _show_metrics(self) -> Reply:
        media_type, text = await self._metrics.get()
        return Reply(200, text, media_type)


async def _alive(_: Head, __: ReadBody) -> Reply:
    return document(200, {"alive": True})
