"""The views of the gateway: health, readiness, status, metrics, live view, searches."""

import asyncio
import re
import unicodedata
from collections.abc import Awaitable, Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Generic, TypeVar
from urllib.parse import parse_qsl

from agent.decode.event_map import DEVICE_CHARACTERS_MAX
from agent.http.application import Handler, Resources
from agent.http.auth.access import Access
from agent.http.events import ReadBody
from agent.http.head import Head
from agent.http.page import public_resources
from agent.http.response import NO_OTHER_SITE, Response, document, encode, refusal, retry_after
from agent.http.sources import Sources
from agent.store.errors import FAILURES
from agent.store.read.documents import RejectSelection, read_rejected
from agent.telemetry.history import SPANS

FRESH_SECONDS = 1.0
"""How old a view may be, which bounds the work that any number of readers causes."""
VIEW_SECONDS_MAX = 10.0
RETRY_SECONDS = 10
NUMBER_DIGITS_MAX = 19

FINGERPRINT = re.compile("[0-9a-f]{32}")

T = TypeVar("T")


class CachedView(Generic[T]):
    """The result of a blocking function, computed in a thread, and shared by all requests within FRESH_SECONDS."""

    def __init__(self, read: Callable[[], T]) -> None:
        self._read_view = read
        self._begun = 0.0
        self._work: asyncio.Task[T] | None = None

    async def get(self) -> T:
        """Return the result; raise Refusal where there is none in time, while the work continues for later requests."""
        now = asyncio.get_running_loop().time()
        if self._work is None or (self._work.done() and now - self._begun > FRESH_SECONDS):
            self._begun = now
            self._work = asyncio.create_task(asyncio.to_thread(self._read_view), name="http-view")
        return await _in_time(self._work)


class Searches:
    """Runs searches, one at a time, since each takes a thread and memory."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, "http-search")

    async def get(self, read: Callable[[], T]) -> T:
        """Return the result; raise Refusal where there is none in time, and cancel a search that has not begun."""
        work = asyncio.get_running_loop().run_in_executor(self._executor, read)
        try:
            return await _in_time(work)
        finally:
            work.cancel()


async def _in_time(work: asyncio.Future[T]) -> T:
    try:
        async with asyncio.timeout(VIEW_SECONDS_MAX):
            return await asyncio.shield(work)
    except FAILURES as error:  # a TimeoutError is an OSError
        message = f"this cannot be read now: {str(error) or 'it takes too long'}"
        raise refusal(503, "unavailable", message, retry_after(RETRY_SECONDS)) from error


class Views:
    """The resources for readers.

    Results are shared by all requests within FRESH_SECONDS; searches run one after the other.
    """

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._vias = tuple(sources.pipeline.counts)
        self._trouble = CachedView(sources.trouble)
        self._status = CachedView(lambda: sources.current_status().document())
        self._metrics = CachedView(sources.metrics)
        self._live = CachedView(lambda: encode(sources.live()))
        self._searches = Searches()

    def resources(self, access: Access) -> Resources:
        """Return the resources; health and readiness require no token, since probes have none."""

        def readers_only(view: Callable[[Mapping[str, str]], Awaitable[Response]]) -> Handler:
            async def serve(head: Head, _: ReadBody) -> Response:
                access.check_reader(head)
                response = await view(dict(parse_qsl(head.query)))
                return replace(response, fields=(*response.fields, *NO_OTHER_SITE))

            return serve

        return {
            "/healthz": {"GET": _alive},
            "/readyz": {"GET": self._show_readiness},
            "/api/v1/status": {"GET": readers_only(self._show_status)},
            "/api/v1/live": {"GET": readers_only(self._show_live)},
            "/api/v1/history": {"GET": readers_only(self._show_history)},
            "/api/v1/trace": {"GET": readers_only(self._show_trace)},
            "/api/v1/device": {"GET": readers_only(self._show_device)},
            "/api/v1/latest": {"GET": readers_only(self._show_latest)},
            "/api/v1/rejected": {"GET": readers_only(self._show_rejected)},
            "/metrics": {"GET": readers_only(self._show_metrics)},
            **public_resources(self._vias),
        }

    async def _show_readiness(self, _: Head, __: ReadBody) -> Response:
        """Return whether an event could be stored; details of a failure are in the log only."""
        trouble = await self._trouble.get()
        if trouble:
            raise refusal(503, "not ready", trouble.partition(":")[0], retry_after(RETRY_SECONDS))
        return document(200, {"ready": True})

    async def _show_status(self, _: Mapping[str, str]) -> Response:
        return document(200, await self._status.get())

    async def _show_metrics(self, _: Mapping[str, str]) -> Response:
        media_type, text = await self._metrics.get()
        return Response(200, text, media_type)

    async def _show_live(self, query: Mapping[str, str]) -> Response:
        after = query.get("after", "0")
        if not after.isdecimal() or len(after) > NUMBER_DIGITS_MAX:
            raise refusal(400, "bad request", "after: expected the number of an entry, 0 for all")
        live = await self._live.get()
        return Response(
            200, live.removesuffix(b"}") + b',"feed":' + encode(self._sources.pipeline.activity.feed(int(after))) + b"}"
        )

    async def _show_history(self, query: Mapping[str, str]) -> Response:
        span = query.get("span", next(iter(SPANS)))
        if span not in SPANS:
            raise refusal(400, "bad request", f"span: expected one of {', '.join(SPANS)}")
        return document(200, self._sources.history.document(span))

    async def _show_trace(self, query: Mapping[str, str]) -> Response:
        text = query.get("fingerprint", "")
        if not FINGERPRINT.fullmatch(text):
            raise refusal(400, "bad request", "fingerprint: expected 32 hex digits")
        return document(200, await self._searches.get(lambda: self._sources.trace(bytes.fromhex(text))))

    async def _show_device(self, query: Mapping[str, str]) -> Response:
        device = _name(query)
        if not 0 < len(device) <= DEVICE_CHARACTERS_MAX:
            raise refusal(400, "bad request", f"device: expected a name of at most {DEVICE_CHARACTERS_MAX} characters")
        return document(200, await self._searches.get(lambda: self._sources.device(device)))

    async def _show_latest(self, query: Mapping[str, str]) -> Response:
        return document(200, await self._searches.get(lambda: self._sources.latest(_name(query))))

    async def _show_rejected(self, query: Mapping[str, str]) -> Response:
        selection, limit = read_selection(query, self._vias)
        folder = self._sources.settings.gateway.state_dir
        return document(200, await self._searches.get(lambda: read_rejected(folder, selection, limit)))


def _name(query: Mapping[str, str]) -> str:
    """Return the device that a query names, or a part of its name, as events have it."""
    return unicodedata.normalize("NFC", query.get("device", ""))


async def _alive(_: Head, __: ReadBody) -> Response:
    return document(200, {"alive": True})


LIMIT = 100
LIMIT_MAX = 1_000
_WORDS = ("via", "device", "reason", "before", "limit")


def read_selection(query: Mapping[str, str], vias: Collection[str]) -> tuple[RejectSelection, int]:
    """Return which rejected events a query selects, and how many at most; raise Refusal."""
    for word in query:
        if word not in _WORDS:
            raise refusal(400, "bad request", f"{word[:16]}: known are {', '.join(_WORDS)}")
    via = query.get("via", "")
    if via and via not in vias:
        raise refusal(400, "bad request", f"via: expected one of {', '.join(vias)}")
    device = query.get("device", "*")
    if len(device) > DEVICE_CHARACTERS_MAX:
        raise refusal(400, "bad request", f"device: a pattern has at most {DEVICE_CHARACTERS_MAX} characters")
    before = _number("before", query["before"], None) if "before" in query else None
    limit = _number("limit", query["limit"], LIMIT_MAX) if "limit" in query else LIMIT
    return RejectSelection(via, device, query.get("reason", ""), None, before), limit


def _number(word: str, text: str, most: int | None) -> int:
    number = int(text) if text.isascii() and text.isdecimal() and len(text) <= NUMBER_DIGITS_MAX else 0
    if number < 1 or (most is not None and number > most):
        raise refusal(400, "bad request", f"{word}: expected a number from 1" + (f" to {most}" if most else ""))
    return number
