"""A gateway from bytes to store, without a network: the accepted events, and the store's content."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from agent.config.identity_rules import IdentityRule
from agent.config.settings import DevicesSettings, IdentitySettings, StoreSettings
from agent.delivery import Answer, Delivery, Media
from agent.pipeline import Pipeline
from agent.store.event_store import EventStore
from agent.store.port import StoredEvent
from tests.agent.store.stores import GATEWAY, HandClock, stored_events

DEVICE = "urn:dev:mac:00158d0001a2b3c4"


@dataclass(slots=True)
class Gateway:
    store: EventStore
    pipeline: Pipeline

    async def take(self, body: object, media: Media = Media.JSON, key: bytes | None = None, **more: object) -> Answer:
        """Deliver one body, an object as JSON, and wait for the answer."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        delivery = Delivery(raw, media, "coap", "coap://[fe80::1]", retransmission_key=key, **more)  # type: ignore[arg-type]
        self.pipeline.receive(delivery, answered.set_result)
        async with asyncio.timeout(60):
            return await answered

    def events(self) -> list[StoredEvent]:
        """Return the events of devices, in order."""
        return [event for event in stored_events(self.store) if b'"via":"gateway"' not in event.tail]


@asynccontextmanager
async def gateway(
    folder: Path, clock: HandClock, *rules: IdentityRule, devices: DevicesSettings | None = None
) -> AsyncIterator[Gateway]:
    """Open a gateway with these identity rules."""
    settings = IdentitySettings(rules=rules)
    async with EventStore(folder, GATEWAY, StoreSettings(), settings, clock) as store:
        yield Gateway(store, Pipeline(settings, clock, store, devices))
