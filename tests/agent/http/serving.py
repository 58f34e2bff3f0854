"""The real server for a test: on a free port, with the real pipeline and the real store."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from agent.config.lanes import DEFAULT_LANE
from agent.config.settings import (
    DevicesSettings,
    GatewaySettings,
    HttpSettings,
    IdentitySettings,
    KafkaSettings,
    Settings,
)
from agent.delivery import Receive
from agent.forward.kafka.uplink import Uplink
from agent.http.limits import Limits
from agent.http.server import HttpServer
from agent.observability import observe
from agent.pipeline import Pipeline
from agent.store.event_store import EventStore
from agent.store.lanes.stores import LaneStores
from agent.store.schema import database
from agent.telemetry.history import History
from agent.telemetry.links import Links, LinksOfLanes
from agent.telemetry.process_state import ProcessState
from agent.telemetry.recent_errors import RecentErrors
from tests.agent.http.client import Client
from tests.agent.store.stores import GATEWAY, HandClock, make_store

EVENT = b'{"device":"urn:dev:mac:00158d0001a2b3c4","id":17,"data":{"temperature":21.5}}'
KAFKA = KafkaSettings("127.0.0.1:1")
FINGERPRINT = "1876d2e5f34f91105e52555b000b5edc"
POST = "/api/v1/events"


@dataclass(frozen=True, slots=True)
class Served:
    """The parts of a server that tests inspect."""

    server: HttpServer
    store: EventStore
    client: Client
    responses: Counter[int]
    """Of the server, by their code."""
    history: History
    links: Links
    clock: HandClock


@asynccontextmanager
async def serving(
    folder: Path,
    *,
    receive: Receive | None = None,
    limits: Limits | None = None,
    devices: DevicesSettings | None = None,
    connect: database.Connect = database.open_for_service,
    store: dict[str, Any] | None = None,
    uplink: Uplink | None = None,
    **settings: Any,
) -> AsyncIterator[Served]:
    """Serve until the block ends; `receive` replaces pipeline and store."""
    clock = HandClock()
    http = HttpSettings(**{"bind": "127.0.0.1:0", **settings})
    async with make_store(folder / "state", clock, connect=connect, **(store or {})) as events:
        pipeline = Pipeline(IdentitySettings(), clock, events, devices)
        every = Settings(GatewaySettings(id=GATEWAY, state_dir=folder / "state"), KAFKA, http=http)
        links = Links(clock)
        state = ProcessState(RecentErrors(), LinksOfLanes({DEFAULT_LANE: links}), uplink)
        seen = observe(every, LaneStores({DEFAULT_LANE: events}), pipeline, clock, state, {"coap": lambda: 5})
        async with HttpServer(http, receive or pipeline.receive, seen.views, seen.responses, limits) as server:
            yield Served(server, events, Client(server.port), seen.responses, seen.history, links, clock)


def token_file(folder: Path, holders: dict[str, str]) -> Path:
    """Write a token file: a token for each role and name."""
    file = folder / "tokens"
    file.touch(mode=0o640)
    lines = (f"{holder} sha256:{sha256(token.encode()).hexdigest()}\n" for holder, token in holders.items())
    file.write_text("# tokens\n\n" + "".join(lines))
    return file
