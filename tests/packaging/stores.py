"""The store of an installation."""

import asyncio
from pathlib import Path

from contract.event import Event
from tests.agent.store.stores import accept, batch, make_store


def fill_store(folder: Path, number: int, *, processed: bool) -> None:
    """Store an event, and mark all as processed where `processed` is set."""

    async def serve() -> None:
        async with make_store(folder, keep_processed_seconds=10**9) as opened:
            await accept(opened, Event("urn:a", id=number, data={"x": 1}))
            if processed:
                opened.outbox.mark_forwarded(batch(1, 2))
                opened.outbox.mark_processed(opened.outbox.forwarded())

    folder.mkdir(exist_ok=True)
    asyncio.run(serve())
