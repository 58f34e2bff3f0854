"""The ASGI application: receives the requests that uvicorn has parsed, and returns the responses of their handlers."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from uvicorn._types import ASGIReceiveCallable, ASGISendCallable, HTTPScope, Scope

from agent.delivery import Answer, Refuse, refuse_uncounted
from agent.http.events import Events, ReadBody
from agent.http.head import Head, WholePost
from agent.http.limits import Limits
from agent.http.response import Refusal, Response, fields_of, refusal, response_to, retry_after

Handler = Callable[[Head, ReadBody], Awaitable[Response]]
"""Serves a request; raises Refusal."""
Resources = Mapping[str, Mapping[str, Handler]]
"""Handlers by path and method; a handler of GET serves HEAD, too."""
PAGE_FILES = "/page/"
"""The prefix of the status page's files."""
PIECE_BYTES = 32_768
"""Bytes sent at once; the next piece waits until the client has read most of the previous ones."""
BUSY_RETRY_SECONDS = 5
BODY_METHODS = ("POST", "PUT")
"""Requests that are meant to bring events; other refused ones are not counted as such."""

_LAST = ("Connection", "close")
_STOPPING = refusal(
    503,
    "unavailable",
    "the gateway stops; whether these events are stored is not known yet: send them again",
    retry_after(5),
    _LAST,
).response


class ClientGoneError(Exception):
    """The client has closed its connection within a body, and needs no answer."""


@dataclass(eq=False)
class Application:
    """Serves one request in each call; counts its responses by their code."""

    resources: Resources
    events: Events
    limits: Limits
    body_bytes_max: int
    responses: Counter[int]
    refuse: Refuse = refuse_uncounted
    sending_bytes: int = 0
    """Of answers larger than one piece."""

    async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        assert scope["type"] == "http"  # neither lifespan nor WebSocket: the server's settings
        try:
            response = await self._respond(scope, receive)
        except Refusal as refused:
            response = refused.response
            if scope["method"] in BODY_METHODS:
                self.refuse("http", f"http://{_peer(scope)}", refused.answer())
        except ClientGoneError:
            return
        except asyncio.CancelledError:  # uvicorn's time for draining is over; it would answer 500
            response = _STOPPING
        if len(response.body) > PIECE_BYTES and scope["method"] == "GET" and self._answers_full(len(response.body)):
            response = _busy().response
        self.responses[response.code] += 1
        await self._send(response, send)

    def receive(self, post: WholePost) -> asyncio.Future[Answer] | None:
        """Receive a request that the library has not parsed; return None where it has to be refused, or to wait."""
        if len(post.body) > self.body_bytes_max or self._answers_full(0):
            return None
        return self.events.receive(post.head, post.body)

    def response_to(self, outcome: asyncio.Future[Answer]) -> Response:
        """Return the response to a request that `receive` has accepted, and count it."""
        response = _STOPPING if outcome.cancelled() else response_to(outcome.result())
        self.responses[response.code] += 1
        return response

    async def _respond(self, scope: HTTPScope, receive: ASGIReceiveCallable) -> Response:
        if not scope["http_version"].startswith("1."):
            raise refusal(505, "bad request", "this is a server of HTTP/1.1", _LAST)
        target = scope["raw_path"] + b"?" + scope["query_string"]
        head = Head.of(scope["method"].encode(), target, list(scope["headers"]), _peer(scope))
        if {b"transfer-encoding", b"content-length"} <= {name for name, _ in head.fields}:  # RFC 9112 section 6.1
            raise refusal(400, "bad request", "send Content-Length or Transfer-Encoding, not both", _LAST)

        async def read_body() -> bytes:
            if self._answers_full(0):
                raise _busy()
            if (head.body_bytes or 0) > self.body_bytes_max:
                raise self._too_large()
            try:
                async with asyncio.timeout(self.limits.body_seconds_max):
                    return await self._read(receive)
            except TimeoutError:
                raise refusal(408, "timeout", "the request's body did not arrive in time", _LAST) from None

        return await self._handler(head)(head, read_body)

    def _handler(self, head: Head) -> Handler:
        """Return the handler of a request; raise Refusal where there is none."""
        resource = self.resources.get(head.path)
        if resource is None:
            # The files of the page are listed as one.
            paths = dict.fromkeys(PAGE_FILES if path.startswith(PAGE_FILES) else path for path in self.resources)
            raise refusal(404, "not found", f"there are {', '.join(paths)}")
        handler = resource.get("GET" if head.method == "HEAD" else head.method)
        if handler is None:
            allowed = ", ".join((*resource, *(["HEAD"] if "GET" in resource else ())))
            raise refusal(405, "method not allowed", f"here it is {allowed}", ("Allow", allowed))
        return handler

    async def _read(self, receive: ASGIReceiveCallable) -> bytes:
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] != "http.request":
                raise ClientGoneError
            body += message["body"]
            if len(body) > self.body_bytes_max:
                raise self._too_large()
            if not message["more_body"]:
                return bytes(body)

    async def _send(self, response: Response, send: ASGISendCallable) -> None:
        counted = len(response.body) if len(response.body) > PIECE_BYTES else 0
        self.sending_bytes += counted
        try:
            fields = fields_of(response)
            await send({"type": "http.response.start", "status": response.code, "headers": fields, "trailers": False})
            body = memoryview(response.body)
            for at in range(0, len(body) or 1, PIECE_BYTES):
                piece, more = bytes(body[at : at + PIECE_BYTES]), at + PIECE_BYTES < len(body)
                await send({"type": "http.response.body", "body": piece, "more_body": more})
        finally:
            self.sending_bytes -= counted

    def _answers_full(self, more: int) -> bool:
        """Whether an answer of `more` bytes exceeds the bound of answers being sent; a single one may have any size."""
        return self.sending_bytes > 0 and self.sending_bytes + more >= self.limits.answers_bytes_max

    def _too_large(self) -> Refusal:
        bytes_max = self.body_bytes_max
        message = f"a body has at most {bytes_max} bytes (http.max_body_bytes); send less at once"
        return refusal(413, "too large", message)


def _busy() -> Refusal:
    message = "too many answers wait for clients that do not read them"
    return refusal(503, "unavailable", message, retry_after(BUSY_RETRY_SECONDS))


def _peer(scope: HTTPScope) -> str:
    client = scope["client"]
    assert client is not None  # the protocol has ended the connection where it is
    return client[0]
