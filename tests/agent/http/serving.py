"""The real server for a test: on a free port, with the real pipeline and the real store."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from agent.coap.counters import Counters
from agent.config.lanes import DEFAULT_LANE, DEFAULT_PRIORITY, Lane
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
from agent.http.sources import Sources
from agent.http.views import Views
from agent.mappings.catalog import builtin
from agent.pipeline import Pipeline
from agent.store.event_store import EventStore
from agent.store.files.folders import LANES_FOLDER
from agent.store.lanes import LaneStores
from agent.store.schema import database
from agent.telemetry.counters import Transport
from agent.telemetry.history import History
from agent.telemetry.links import Links
from agent.telemetry.process_state import ProcessState, RecentErrors
from tests.agent.http.client import Client
from tests.agent.store.stores import GATEWAY, HandClock, make_store

EVENT = b'{"device":"urn:dev:mac:00158d0001a2b3c4","id":17,"data":{"temperature":21.5}}'
KAFKA = KafkaSettings("127.0.0.1:1")
FINGERPRINT = "1876d2e5f34f91105e52555b000b5edc"
POST = "/api/v1/events"


@dataclass(frozen=True, slots=True)
class Served:
    server: HttpServer
    store: EventStore
    client: Client
    responses: Counter[int]
    """Of the server, by their code."""
    history: History
    links: Links
    clock: HandClock
    lane_links: Mapping[str, Links]


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
    lanes: Sequence[Lane] = (),
    **settings: Any,
) -> AsyncIterator[Served]:
    """Serve until the block ends; `receive` replaces pipeline and store."""
    clock = HandClock()
    http = HttpSettings(**{"bind": "127.0.0.1:0", **settings})
    events = make_store(folder / "state", clock, connect=connect, **(store or {}))
    of_lanes = {lane.name: make_store(folder / "state" / LANES_FOLDER / lane.name, clock) for lane in lanes}
    async with LaneStores({DEFAULT_LANE: events, **of_lanes}, lanes) as stores:
        pipeline = Pipeline(IdentitySettings(), clock, stores.intake, devices)
        every = Settings(GatewaySettings(id=GATEWAY, state_dir=folder / "state"), KAFKA, http=http)
        links = {name: Links(clock) for name in stores.by_lane}
        priorities = {DEFAULT_LANE: DEFAULT_PRIORITY, **{lane.name: lane.priority for lane in lanes}} if lanes else {}
        state = ProcessState(RecentErrors(), links, None if uplink is None else uplink.state, priorities)
        coap = Transport(lambda: 5, Counters(shed=7, replayed=8).unserved)
        sources = Sources(every, stores, pipeline, clock, state, {"coap": coap})
        async with HttpServer(
            *(http, receive or pipeline.receive, Views(sources), sources.responses, limits),
            refuse=pipeline.refuse,
            mappings=builtin,
        ) as server:
            client, of_gateway = Client(server.port), links[DEFAULT_LANE]
            yield Served(server, events, client, sources.responses, sources.history, of_gateway, clock, links)


def token_file(folder: Path, holders: dict[str, str]) -> Path:
    """Write a token file: a token for each role and name."""
    file = folder / "tokens"
    file.touch(mode=0o640)
    lines = (f"{holder} sha256:{sha256(token.encode()).hexdigest()}\n" for holder, token in holders.items())
    file.write_text("# tokens\n\n" + "".join(lines))
    return file
