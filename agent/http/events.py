"""The resource for POSTs of events; it passes them to the pipeline."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

from agent.delivery import Answer, Delivery, ForeignFormat, Media, Receive
from agent.http.auth.access import Access
from agent.http.auth.tokens import Role
from agent.http.head import Head
from agent.http.response import Refusal, Response, refusal, response_to, retry_after
from agent.pace import Pace

if TYPE_CHECKING:
    from agent.mappings.mapping import EventMapping

BUSY_RETRY_SECONDS: Final = 1
MAPPING: Final = "mapping"
"""The word of the query that names a mapping."""
_SECRET: Final = (b"authorization", b"cookie")
"""Fields that no mapping sees."""

Mappings = Callable[[], "Mapping[str, EventMapping]"]
"""Returns all mappings by their names; called where a request names one."""

ReadBody = Callable[[], Awaitable[bytes]]
"""Reads the request's body; raises Refusal where it is too large or too slow."""


class Events:
    """The resource of the events."""

    def __init__(self, receive: Receive, access: Access, in_progress_max: int, mappings: Mappings) -> None:
        self._receive = receive
        self._mappings = mappings
        self._access = access
        self._in_progress_max = in_progress_max
        self._in_progress = 0
        self._pace = Pace()

    async def post(self, head: Head, read_body: ReadBody) -> Response:
        """Accept a delivery; refuse it before reading its body where possible."""
        delivery = self._delivery(head)
        if self._in_progress >= self._in_progress_max:
            raise refusal(503, "unavailable", "too many requests in progress", retry_after(BUSY_RETRY_SECONDS))
        self._in_progress += 1
        try:
            delivery.body = await read_body()
            await self._pace.turn()
            return response_to(await self._receive_one(delivery))
        finally:
            self._in_progress -= 1

    def receive(self, head: Head, body: bytes) -> asyncio.Future[Answer] | None:
        """Receive a delivery whose body has been read; return None where `post` has to refuse it, or to wait."""
        if self._in_progress >= self._in_progress_max or not self._pace.has_time():
            return None
        try:
            delivery = self._delivery(head)
        except Refusal:
            return None
        self._in_progress += 1
        delivery.body = body
        outcome = self._receive_one(delivery)
        outcome.add_done_callback(self._end)
        return outcome

    def _delivery(self, head: Head) -> Delivery:
        """Return the delivery of a request, still without its body; raise Refusal."""
        holder = self._access.sender(head)
        words = head.words()
        return Delivery(
            body=b"",
            media=self._foreign(head, words) if MAPPING in words else head.media(),
            via="http",
            sender=f"http://{head.peer}",
            authenticated=None if holder is None else holder.name,
            query={} if MAPPING in words else words,
            relay=holder is not None and holder.role is Role.RELAY,
        )

    def _foreign(self, head: Head, words: Mapping[str, str]) -> ForeignFormat:
        """Return the format that the query names; the mapping alone says what identifies the event."""
        if head.media() is not Media.JSON:  # a type that needs a preflight request, as for our own formats
            raise refusal(415, "unknown format", "a mapping reads JSON", ("Accept", "application/json"))
        if len(words) > 1:
            raise refusal(400, "undecodable", f"query: beside {MAPPING} there are no other words")
        mapping = self._mappings().get(words[MAPPING])
        if mapping is None:
            raise refusal(400, "undecodable", f"query: unknown mapping {words[MAPPING][:64]!a}")
        names = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.fields if name not in _SECRET}
        return ForeignFormat(mapping, [], names)

    def _receive_one(self, delivery: Delivery) -> asyncio.Future[Answer]:
        outcome: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def respond(answer: Answer) -> None:
            if not outcome.done():  # the server may have stopped waiting; the commit remains
                outcome.set_result(answer)

        self._receive(delivery, respond)
        return outcome

    def _end(self, outcome: asyncio.Future[Answer]) -> None:
        self._in_progress -= 1
