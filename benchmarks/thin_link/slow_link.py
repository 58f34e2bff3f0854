"""A thin uplink before a server: 600 ms there and back, one of ten segments a second late, 2 kB/s in each direction."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Final

from simulators.link.faults import Delay, LinkFault, Packet
from simulators.link.profile import LinkProfile
from simulators.link.tcp import StreamLink

DELAY_SECONDS: Final = 0.3
LOSS: Final = 0.1
RESEND_SECONDS: Final = 1.0
BYTES_PER_SECOND: Final = 2_000
SEED: Final = 3
START_SECONDS_MAX: Final = 10


@dataclass(slots=True)
class Resend:
    """What TCP makes of losses: a segment arrives later, once or several times."""

    random: Random

    def apply(self, packet: Packet) -> tuple[Packet]:
        """Delay a lost segment."""
        while self.random.random() < LOSS:
            packet = packet.later(RESEND_SECONDS)
        return (packet,)


@dataclass(slots=True)
class Rate:
    """What a slow line makes of a piece: it takes time by its size."""

    def apply(self, packet: Packet) -> tuple[Packet]:
        """Delay a piece by the time that its bytes take."""
        return (packet.later(len(packet.datagram) / BYTES_PER_SECOND),)


def faults(random: Random) -> list[LinkFault]:
    """Return the faults of one direction."""
    return [Delay(DELAY_SECONDS, DELAY_SECONDS, random), Resend(random), Rate()]


@contextmanager
def slow_link(target: int) -> Iterator[int]:
    """Run the link in a thread; yield its port."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="link", daemon=True)
    thread.start()
    link = StreamLink(("127.0.0.1", target), LinkProfile(faults, faults), 0.0, SEED)
    asyncio.run_coroutine_threadsafe(link.__aenter__(), loop).result(START_SECONDS_MAX)
    try:
        yield link.address[1]
    finally:
        asyncio.run_coroutine_threadsafe(link.__aexit__(), loop).result(START_SECONDS_MAX)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
