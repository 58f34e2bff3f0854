"""The HTTP server: uvicorn in the agent's event loop."""

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Self

import uvicorn

from agent.coap.udp import uri_host
from agent.config.settings import HttpSettings
from agent.delivery import Receive, Refuse, refuse_uncounted
from agent.http import address
from agent.http.application import Application
from agent.http.auth.access import open_access, open_tls
from agent.http.connection.acceptor import Acceptor
from agent.http.connection.protocol import Protocol
from agent.http.events import Events, Mappings
from agent.http.head import EVENTS_PATH
from agent.http.limits import Limits
from agent.http.views import Views
from agent.listening import Listen, listen_anew

log = logging.getLogger(__name__)

TICK_SECONDS = 1.0
"""How often the Date of the answers is updated."""


class HttpServer:
    """Receives events over HTTP, and serves the views: `async with HttpServer(settings, receive, views)`.

    Each POST leads to one call of `receive`; its answer is sent when `receive` responds. Leaving the block drains.
    Raises HttpSettingsError on construction, BindError on entry.
    """

    def __init__(  # noqa: PLR0913  # as the CoAP server
        self,
        settings: HttpSettings,
        receive: Receive,
        views: Views,
        responses: Counter[int],
        limits: Limits | None = None,
        refuse: Refuse = refuse_uncounted,
        mappings: Mappings = dict,
        *,
        listen: Listen = listen_anew,
    ) -> None:
        self._settings = settings
        limits = limits or Limits()
        self._access = access = open_access(settings)
        self._tls = open_tls(settings)
        events = Events(receive, access, limits.requests_in_progress_max, mappings)
        resources = {EVENTS_PATH: {"POST": events.post}, **views.resources(access)}
        self._application = Application(resources, events, limits, settings.max_body_bytes, responses, refuse)
        self._limits = limits
        self._listen = listen

    async def __aenter__(self) -> Self:
        self._socket = address.listen(self._settings.bind, self._listen)
        self._server = _Server(self._config())
        make = partial(Protocol, self._server.config, self._server.server_state, {})
        self._acceptor = Acceptor(self._socket, make, self._tls, self._limits)
        self._group = asyncio.TaskGroup()
        await self._group.__aenter__()
        self._serving = self._group.create_task(self._server.serve([self._socket]), name="http-server")
        self._accepting = self._group.create_task(self._acceptor.run(), name="http-accept")
        log.info("http=listening address=%s tls=%s", self.address, self._tls is not None)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.drain()
        finally:
            # The group must receive a cancellation, which may be its own; other exceptions are not of its tasks.
            cancelled = isinstance(error, asyncio.CancelledError)
            await (self._group.__aexit__(kind, error, trace) if cancelled else self._group.__aexit__(None, None, None))

    def renew(self) -> Iterable[str]:
        """Read tokens, certificate and key again, for new requests and connections; return who may send.

        Raise HttpSettingsError where they cannot be used; then those before stay in use.
        """
        tokens, tls = open_access(self._settings).tokens, open_tls(self._settings)
        self._access.tokens = tokens
        self._acceptor.tls = tls
        return () if tokens is None else tokens.senders

    async def drain(self) -> None:
        """Stop accepting, and wait until the requests in progress have been answered, or until the time limit."""
        self._accepting.cancel()
        await asyncio.wait({self._accepting})
        self._server.end()
        await asyncio.wait({self._serving})
        await self._acceptor.close()

    @property
    def address(self) -> str:
        """The address that is listened on, as `host:port`."""
        address = self._socket.getsockname()
        return f"{uri_host(address)}:{address[1]}"

    @property
    def port(self) -> int:
        port: int = self._socket.getsockname()[1]
        return port

    @property
    def connections(self) -> int:
        """How many connections are open, including those in their TLS handshake."""
        return len(self._acceptor)

    def _config(self) -> uvicorn.Config:
        return uvicorn.Config(
            self._application,
            http=Protocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level=logging.ERROR,  # below it, each malformed request is logged
            access_log=False,
            proxy_headers=False,
            server_header=False,
            h11_max_incomplete_event_size=self._limits.head_bytes_max,
            timeout_keep_alive=self._limits.head_seconds_max,  # type: ignore[arg-type]  # asyncio takes any number
            timeout_graceful_shutdown=self._limits.drain_seconds_max,  # type: ignore[arg-type]
        )


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ended = asyncio.Event()

    def end(self) -> None:
        self.should_exit = True
        self._ended.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start without listening: the acceptor passes the connections."""
        await self.lifespan.startup()
        self.servers: list[asyncio.Server] = []
        self.started = True

    async def main_loop(self) -> None:
        """Update the answers' Date once a second; uvicorn's ten times are most of an idle gateway's work."""
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(TICK_SECONDS):
                    await self._ended.wait()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do not capture signals, which the agent handles."""
        yield
