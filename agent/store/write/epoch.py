"""The epoch under which this opening labels its events."""

from __future__ import annotations

import secrets

from agent.clock import Clock
from agent.store.schema.tables import EpochStart
from agent.store.write.service_clock import ServiceClock
from contract.record import ClockTrust

EPOCH_BYTES = 8


class CurrentEpoch:
    """The current epoch: a new one for each opening of the writing connection, and after each commit that has failed.

    Written on the writer's thread; its name is read on any.
    """

    def __init__(self, clock: Clock, service: ServiceClock) -> None:
        self._clock = clock
        self._service = service
        self.start = new_epoch(clock, service.now_ms())
        self.first_position: int | None = None
        """Position of the epoch's first event; None until that is on disk."""

    @property
    def name(self) -> str:
        """The epoch's name, whether or not anything is stored under it."""
        return self.start.epoch

    def renew(self) -> None:
        """Begin another epoch: what may have been labelled under this one must not be labelled so again."""
        self.start = new_epoch(self._clock, self._service.now_ms())
        self.first_position = None


def new_epoch(clock: Clock, service_ms: int) -> EpochStart:
    """Return a new epoch, under a random name that was never used."""
    return EpochStart(
        secrets.token_hex(EPOCH_BYTES),
        clock.boot(),
        clock.uptime_ms(),
        clock.wall_ms(),
        clock.trust() is ClockTrust.TRUSTED,
        service_ms,
    )
