"""What the gateway shows of itself: alive, ready, status, metrics."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar
from urllib.parse import parse_qsl

from agent.http.auth.access import Access
from agent.http.events import ReadBody
from agent.http.head import Head
from agent.http.page import page_resources
from agent.http.reply import Reply, document, encode, refusal, retry_after
from agent.http.site import Handler, Resources
from agent.status import Status
from agent.store.errors import StoreError

FRESH_SECONDS = 1.0
"""How old a view may be: so much work at most do readers make, however many ask."""
VIEW_SECONDS_MAX = 10.0
RETRY_SECONDS = 10
NUMBER_DIGITS_MAX = 19

FINGERPRINT = re.compile("[0-9a-f]{32}")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Looks:
    """What can be looked at; each may block but `feed`."""

    trouble: Callable[[], str]
    """Returns why nothing can be stored."""
    status: Callable[[], Status]
    """That of `oncegate status`."""
    metrics: Callable[[], tuple[str, bytes]]
    """Returns media type and text for Prometheus."""
    live: Callable[[], Mapping[str, object]]
    """Returns what the status page shows, but for its feed."""
    feed: Callable[[int], Sequence[Mapping[str, object]]]
    """Returns the latest outcomes after a number."""
    trace: Callable[[bytes], Sequence[Mapping[str, object]]]
    """Returns the way of the events under a fingerprint."""
    latest: Callable[[str], Sequence[Mapping[str, object]]]
    """Returns the latest events of the devices whose name holds a text."""


class Recent(Generic[T]):
    """The result of work that blocks, done in a thread, and shared by all who ask within a second."""

    def __init__(self, look: Callable[[], T]) -> None:
        self._look = look
        self._begun = 0.0
        self._work: asyncio.Task[T] | None = None

    async def get(self) -> T:
        """Return the result; raise Refusal where there is none in time: the work goes on for those who ask later."""
        now = asyncio.get_running_loop().time()
        if self._work is None or (self._work.done() and now - self._begun > FRESH_SECONDS):
            self._begun = now
            self._work = asyncio.create_task(asyncio.to_thread(self._look), name="http-view")
        return await _in_time(self._work)


class Searches:
    """Work that depends on what is asked: one search at a time, since each takes a thread and memory from the rest."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def get(self, look: Callable[[], T]) -> T:
        """Return the result; raise Refusal where there is none in time, and begin nothing for nobody."""
        work = asyncio.create_task(self._take_turn(look), name="http-search")
        try:
            return await _in_time(work)
        finally:
            work.cancel()

    async def _take_turn(self, look: Callable[[], T]) -> T:
        async with self._turn:
            work = asyncio.ensure_future(asyncio.to_thread(look))
            try:
                return await asyncio.shield(work)
            except asyncio.CancelledError:
                await asyncio.wait((work,))  # a thread cannot be ended, and the next one begins after it
                raise


async def _in_time(work: asyncio.Task[T]) -> T:
    try:
        async with asyncio.timeout(VIEW_SECONDS_MAX):
            return await asyncio.shield(work)
    except (OSError, StoreError, sqlite3.Error) as error:  # a TimeoutError is an OSError
        message = f"this cannot be read now: {str(error) or 'it takes too long'}"
        raise refusal(503, "unavailable", message, retry_after(RETRY_SECONDS)) from error


class Views:
    """The resources to be read; what is given may block.

    They are shared by all who ask within a second; what depends on what is asked comes one after the other.
    """

    def __init__(self, looks: Looks) -> None:
        self._looks = looks
        self._trouble = Recent(looks.trouble)
        self._status = Recent(lambda: looks.status().document())
        self._metrics = Recent(looks.metrics)
        self._live = Recent(lambda: encode(looks.live()))
        self._searches = Searches()

    def resources(self, access: Access) -> Resources:
        """Lay out the resources; alive and ready are for everybody, since what asks for them has no token."""

        def readers_only(view: Callable[[Mapping[str, str]], Awaitable[Reply]]) -> Handler:
            async def serve(head: Head, _: ReadBody) -> Reply:
                access.check_reader(head)
                return await view(dict(parse_qsl(head.query)))

            return serve

        return {
            "/healthz": {"GET": _alive},
            "/readyz": {"GET": self._show_readiness},
            "/api/v1/status": {"GET": readers_only(self._show_status)},
            "/api/v1/live": {"GET": readers_only(self._show_live)},
            "/api/v1/trace": {"GET": readers_only(self._show_trace)},
            "/api/v1/latest": {"GET": readers_only(self._show_latest)},
            "/metrics": {"GET": readers_only(self._show_metrics)},
            **page_resources(),
        }

    async def _show_readiness(self, _: Head, __: ReadBody) -> Reply:
        """Return whether an event could be stored; the log has the details of why not."""
        trouble = await self._trouble.get()
        if trouble:
            raise refusal(503, "not ready", trouble.partition(":")[0], retry_after(RETRY_SECONDS))
        return document(200, {"ready": True})

    async def _show_status(self, _: Mapping[str, str]) -> Reply:
        return document(200, await self._status.get())

    async def _show_metrics(self, _: Mapping[str, str]) -> Reply:
        media_type, text = await self._metrics.get()
        return Reply(200, text, media_type)

    async def _show_live(self, asked: Mapping[str, str]) -> Reply:
        after = asked.get("after", "0")
        if not after.isdecimal() or len(after) > NUMBER_DIGITS_MAX:
            raise refusal(400, "bad request", "after: expected the number of an entry, 0 for all")
        live = await self._live.get()
        return Reply(200, live.removesuffix(b"}") + b',"feed":' + encode(self._looks.feed(int(after))) + b"}")

    async def _show_trace(self, asked: Mapping[str, str]) -> Reply:
        text = asked.get("fingerprint", "")
        if not FINGERPRINT.fullmatch(text):
            raise refusal(400, "bad request", "fingerprint: expected 32 hex digits")
        return document(200, await self._searches.get(lambda: self._looks.trace(bytes.fromhex(text))))

    async def _show_latest(self, asked: Mapping[str, str]) -> Reply:
        return document(200, await self._searches.get(lambda: self._looks.latest(asked.get("device", ""))))


async def _alive(_: Head, __: ReadBody) -> Reply:
    return document(200, {"alive": True})
