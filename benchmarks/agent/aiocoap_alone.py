"""aiocoap's server as in its documentation, in front of the agent's pipeline and store: `… PORT FOLDER`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from aiocoap import Context, Message, resource  # type: ignore[import-untyped] # aiocoap carries no types
from aiocoap.numbers.codes import Code  # type: ignore[import-untyped]

from agent.clock import SystemClock
from agent.config.settings import IdentitySettings, StoreSettings
from agent.delivery import Answer, Delivery, Media, Status
from agent.pipeline import Pipeline
from agent.store.event_store import EventStore


class Events(resource.Resource):  # type: ignore[misc] # aiocoap carries no types
    """POST of events."""

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__()
        self._pipeline = pipeline

    async def render_post(self, request: Message) -> Message:
        """Store, then answer."""
        outcome: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        delivery = Delivery(request.payload, Media.JSON, "coap", request.remote.uri_base)
        self._pipeline.receive(delivery, outcome.set_result)
        durable = (await outcome).status is Status.DURABLE
        return Message(code=Code.CHANGED if durable else Code.SERVICE_UNAVAILABLE)


async def main(port: int, folder: Path) -> None:
    """Serve until killed."""
    clock = SystemClock()
    settings = IdentitySettings()
    async with EventStore(folder, "bench", StoreSettings(max_bytes=8 << 30), settings, clock) as store:
        site = resource.Site()
        site.add_resource(["events"], Events(Pipeline(settings, clock, store)))
        await Context.create_server_context(site, bind=("::1", port), transports=["udp6"])
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2])))
