"""Opens the ways in: what the agent gives each, what it returns, and how the agent's own are opened."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Any

from agent.clock import Clock
from agent.coap.errors import CredentialsError
from agent.coap.oscore.serving import OscoreServing, open_oscore, renewed
from agent.coap.server import CoapServer
from agent.config.settings import Settings
from agent.delivery import Receive, Record, Refuse
from agent.listening import Listen, listen_anew
from agent.renewal import Renewal, WatchedFiles
from agent.store.port import Outbox
from agent.telemetry.counters import Transport
from agent.telemetry.links import Links

if TYPE_CHECKING:
    from agent.http.sources import Sources
    from agent.mappings.mapping import EventMapping


@dataclass(frozen=True, slots=True)
class Opening:
    """The parts of the agent that a way in uses."""

    name: str
    settings: Any
    """Its own section; a way in of the agent itself reads `every`."""
    every: Settings
    clock: Clock
    receive: Receive
    """Takes a delivery, whose `via` is a protocol of this way in, and answers it after its commit."""
    record: Record
    refuse: Refuse
    protect: Callable[[Iterable[str]], None]
    """Has events of these devices admitted only from themselves, authenticated."""
    now: Callable[[], int | None]
    """Returns the time in milliseconds since 1970 UTC, None where the clock is untrusted."""
    links: Links
    outbox: Outbox
    """Keeps facts, by names of its own."""
    sources: Callable[[], Sources]
    """Returns what views read, for a server of them."""
    listen: Listen = listen_anew
    """Returns a socket that stays bound while the agent restarts, if systemd keeps it."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The parts of an open way in that the agent uses."""

    address: str = ""
    """Where it listens; empty where it does not."""
    run: Callable[[asyncio.Event], Coroutine[Any, Any, None]] | None = None
    """Its work until the event is set, after which it finishes what is in progress; an error ends the agent."""
    transport: Transport | None = None
    """What it counts itself, as what it recognises and answers without the pipeline."""
    renewal: Renewal | None = None
    """Its secrets that may be replaced while it is open."""
    forget_answers: Callable[[], None] | None = None
    """Clears its remembered answers: called when events are given up, so that their resend is stored as new."""


Open = Callable[[Opening], AbstractAsyncContextManager[Opened]]
"""Reads who may send, and protects these devices, before any way in is entered; raises what its settings get wrong."""


def open_coap(opening: Opening) -> AbstractAsyncContextManager[Opened]:
    """Open the CoAP server."""
    folder = opening.every.coap_oscore.credentials_dir
    files = WatchedFiles(lambda: () if folder is None else (folder,))
    oscore = open_oscore(opening.every.coap_oscore, opening.every.gateway.state_dir)
    if oscore is not None:
        opening.protect(oscore.devices)
    return _serve_coap(opening, oscore, files)


@asynccontextmanager
async def _serve_coap(opening: Opening, oscore: OscoreServing | None, files: WatchedFiles) -> AsyncIterator[Opened]:
    server = CoapServer(
        *(opening.every.coap, opening.receive),
        oscore=oscore,
        now=opening.now,
        refuse=opening.refuse,
        listen=opening.listen,
    )
    async with server:
        closed = "" if oscore is None else oscore.closed
        transport = Transport(lambda: server.counters.duplicates, server.counters.unserved, closed)
        renewal = None if oscore is None else _renewal_of_oscore(opening, server, oscore, files)
        yield Opened(server.address, None, transport, renewal, server.forget_answers)


def _renewal_of_oscore(opening: Opening, server: CoapServer, oscore: OscoreServing, files: WatchedFiles) -> Renewal:
    def read() -> None:
        serving = renewed(opening.every.coap_oscore, oscore)
        opening.protect(serving.devices)
        server.renew(serving)

    return Renewal("coap", files, read, (CredentialsError,))


def open_http(opening: Opening) -> AbstractAsyncContextManager[Opened]:
    """Open the HTTP server, for events and views."""
    settings = opening.every.http
    named = (settings.token_file, settings.tls_certificate, settings.tls_key)
    files = WatchedFiles(lambda: [file for file in named if file is not None])
    if settings.token_file is not None:
        from agent.http.auth.tokens import read_tokens

        opening.protect(read_tokens(settings.token_file).senders)
    return _serve_http(opening, files)


@asynccontextmanager
async def _serve_http(opening: Opening, files: WatchedFiles) -> AsyncIterator[Opened]:
    # Imported here: a gateway without HTTP needs neither their time nor their memory (decision 7).
    from agent.http.address import HttpSettingsError
    from agent.http.server import HttpServer
    from agent.http.views import Views

    @cache
    def mappings() -> Mapping[str, EventMapping]:
        from agent.mappings.catalog import catalog  # with its library, once a request names a mapping

        return catalog(opening.every.mappings.own, opening.every.mappings.folder)

    sources = opening.sources()
    server = HttpServer(
        *(opening.every.http, opening.receive, Views(sources), sources.responses),
        refuse=opening.refuse,
        mappings=mappings,
        listen=opening.listen,
    )
    renewal = Renewal("http", files, lambda: opening.protect(server.renew()), (HttpSettingsError,))
    async with sources.history.sampled(), server:
        yield Opened(server.address, renewal=renewal)


@asynccontextmanager
async def open_mqtt(opening: Opening) -> AsyncIterator[Opened]:
    """Subscribe at the MQTT broker."""
    from agent.mqtt.session import SessionKeeper
    from agent.mqtt.subscriber import Subscriber  # its client costs time and memory: only where it is used

    mqtt = opening.every.mqtt
    session = SessionKeeper(opening.outbox, opening.clock, opening.every.gateway.id, mqtt)
    yield Opened(run=Subscriber(mqtt, session, opening.receive, opening.record, opening.links, Random()).run)
