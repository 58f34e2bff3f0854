"""The resource for events in aiocoap's site; it passes requests to the same pipeline as the fast path."""

import asyncio
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from aiocoap import Message, error, resource  # type: ignore[import-untyped] # aiocoap carries no types
from aiocoap.numbers.codes import Code  # type: ignore[import-untyped]
from aiocoap.numbers.constants import TransportTuning  # type: ignore[import-untyped]
from aiocoap.numbers.optionnumbers import OptionNumber  # type: ignore[import-untyped]

from agent.coap.answer import (
    ACCEPTED,
    BAD_BLOCK,
    BODY_TOO_LARGE,
    CONTINUE,
    TOO_MANY,
    Reply,
    accepted_at,
    refusal_of,
    reply_to,
)
from agent.coap.dispatcher import PATHS
from agent.coap.errors import RequestRefusedError
from agent.coap.exchange import Now
from agent.coap.message import QueryError, media_of, read_query
from agent.coap.slow_path.blocks import Block, Blocks, CompleteBody
from agent.delivery import Answer, Delivery, Media, Receive, Refuse, Status, refuse_uncounted
from agent.pace import Pace

if TYPE_CHECKING:
    from agent.coap.slow_path.bridge import Remote

IN_PROGRESS_MAX = 1_024
"""Requests of the slow path in progress; more are refused."""
WAITING_BYTES_MAX = 4 << 20
"""Bytes of bodies that wait for their turn; more are refused."""

_RESERVED_SIZE_EXPONENT = 7


class EventsResource(resource.Resource):  # type: ignore[misc] # aiocoap carries no types
    """Accepts POSTs of events; assembles blocks itself, since aiocoap would accept a body of any size."""

    rt = "oncegate.events"
    ct = " ".join(str(media.value) for media in Media if media.value >= 0)

    def __init__(
        self,
        receive: Receive,
        body_bytes_max: int,
        lifetime_seconds: float,
        tuning: TransportTuning,
        now: Now,
        pace: Pace,
        refuse: Refuse = refuse_uncounted,
    ) -> None:
        super().__init__()
        self.refuse = refuse
        self._now = now
        self._receive = receive
        self._body_bytes_max = body_bytes_max
        self._tuning = tuning
        self._plain_blocks = Blocks(body_bytes_max, lifetime_seconds)
        self._protected_blocks = Blocks(body_bytes_max, lifetime_seconds)
        """Separate, so that unauthenticated uploads evict none under OSCORE (decision 64)."""
        self._in_progress: set[asyncio.Future[Answer]] = set()
        self._pace = pace
        self._waiting_bytes = 0

    async def needs_blockwise_assembly(self, request: Message) -> bool:
        """Return False: the resource assembles blocks itself."""
        return False

    async def render_post(self, request: Message) -> Message:
        block1 = request.opt.block1
        try:
            complete = self._complete_body(request)
            reply = Reply(CONTINUE) if complete is None else await self._answer(request, complete)
        except RequestRefusedError as refused:
            reply = refused.reply
            self.refuse("coap", request.remote.sender, refusal_of(reply.code, reply.payload))
        message = Message(code=Code(reply.code), payload=reply.payload, transport_tuning=self._tuning)
        message.opt.max_age, message.opt.size1, message.opt.block1 = reply.max_age, reply.size1, block1
        message.opt.content_format = reply.content_format
        return message

    @property
    def in_progress(self) -> int:
        """How many requests wait for their outcome."""
        return len(self._in_progress)

    async def finished(self) -> None:
        if self._in_progress:
            await asyncio.wait(self._in_progress)

    def _complete_body(self, request: Message) -> CompleteBody | None:
        remote: Remote = request.remote
        block1 = request.opt.block1
        if block1 is None:
            if len(request.payload) > self._body_bytes_max:
                raise RequestRefusedError(reply_to(BODY_TOO_LARGE, self._body_bytes_max))
            return CompleteBody(request.payload, remote.retransmission_key)
        if block1.size_exponent == _RESERVED_SIZE_EXPONENT:
            raise RequestRefusedError(BAD_BLOCK)
        if (request.opt.size1 or 0) > self._body_bytes_max:
            raise RequestRefusedError(reply_to(BODY_TOO_LARGE, self._body_bytes_max))
        block = Block(block1.start, block1.size, block1.more, request.payload, remote.retransmission_key)
        blocks = self._plain_blocks if remote.credential is None else self._protected_blocks
        return blocks.add(_upload(request), block, asyncio.get_running_loop().time())

    async def _answer(self, request: Message, complete: CompleteBody) -> Reply:
        remote: Remote = request.remote
        try:
            query = read_query(request.opt.uri_query)
        except QueryError as error:
            raise RequestRefusedError(
                reply_to(Answer(Status.UNDECODABLE, reason=str(error)), self._body_bytes_max)
            ) from error
        delivery = Delivery(
            body=complete.body,
            media=media_of(request.opt.content_format, complete.body),
            via="coap",
            sender=remote.endpoint.sender,
            authenticated=None if remote.credential is None else remote.credential.device,
            query=query.words,
            retransmission_key=complete.retransmission_key,
            relay=remote.credential is not None and remote.credential.relay,
        )
        if len(self._in_progress) >= IN_PROGRESS_MAX or self._waiting_bytes >= WAITING_BYTES_MAX:
            raise RequestRefusedError(TOO_MANY)
        outcome: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._in_progress.add(outcome)
        outcome.add_done_callback(self._in_progress.discard)

        def respond(answer: Answer) -> None:
            if not outcome.done():  # the request may be cancelled; the commit remains
                outcome.set_result(answer)

        await self._turn(len(complete.body), outcome)
        self._receive(delivery, respond)
        reply = reply_to(await outcome, self._body_bytes_max)
        return accepted_at(self._now()) if query.asks_time and reply is ACCEPTED else reply

    async def _turn(self, body_bytes: int, outcome: asyncio.Future[Answer]) -> None:
        """Wait for a turn of the loop; a request that aiocoap cancels meanwhile has no outcome."""
        self._waiting_bytes += body_bytes
        try:
            await self._pace.turn()
        except asyncio.CancelledError:
            outcome.cancel()
            raise
        finally:
            self._waiting_bytes -= body_bytes


class EventsSite(resource.Site):  # type: ignore[misc] # aiocoap carries no types
    """A site whose answer to another path or method names the right ones; it counts what it refuses."""

    def __init__(self, refuse: Refuse) -> None:
        super().__init__()
        self._refuse = refuse

    async def render_to_pipe(self, request: Any) -> None:
        message = request.request
        try:
            await super().render_to_pipe(request)
        except error.RenderableError as refusal:
            raise self._counted(message, refusal) from None

    async def render(self, request: Message) -> Message:
        try:
            return await super().render(request)
        except error.RenderableError as refusal:
            raise self._counted(request, refusal) from None

    def _counted(self, request: Message, refusal: error.RenderableError) -> error.RenderableError:
        if isinstance(refusal, error.NotFound | error.MethodNotAllowed):
            refusal.message = "post events to /" + " or /".join(PATHS)
        if request.code in (Code.POST, Code.PUT):
            message = refusal.to_message()
            self._refuse("coap", request.remote.sender, refusal_of(message.code, message.payload))
        return refusal


def make_site(events: EventsResource) -> EventsSite:
    """Return the site: the events under each path, and /.well-known/core (RFC 6690)."""
    site = EventsSite(events.refuse)
    for path in PATHS:
        site.add_resource([path], events)

    def listed() -> Any:
        """Return one path: a list of all is three times as long as the request, whose source may be forged."""
        links = site.get_resources_as_linkheader()
        links.links = [link for link in links.links if link.href == f"/{PATHS[0]}"]
        return links

    site.add_resource([".well-known", "core"], resource.WKCResource(listed, impl_info=None))
    return site


def _upload(request: Message) -> Hashable:
    """Return the values that all blocks of one upload share: endpoint and other options (RFC 7959 section 2.5)."""
    apart: Any = (OptionNumber.BLOCK1, OptionNumber.BLOCK2, OptionNumber.OBSERVE)
    return request.remote.blockwise_key, request.get_cache_key(apart)
