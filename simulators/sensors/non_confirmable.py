"""A chirper: non-confirmable requests, each said a few times under one Message ID, whoever hears them."""

from __future__ import annotations

from random import Random

from simulators import wire
from simulators.payloads import Voice
from simulators.scenario import FleetPlan
from simulators.sensors.endpoint import Endpoint
from simulators.sensors.field import Field
from simulators.sensors.reporter import is_done


class Chirper:
    """One device; it stops at the first answer, and never comes back to an event that nobody answered."""

    def __init__(self, field: Field, voice: Voice, plan: FleetPlan, random: Random) -> None:
        self.voice = voice
        self.endpoint = Endpoint(field.timing, random)
        self._field = field
        self._plan = plan

    async def live(self, says: Random) -> None:
        """Chirp until the run is over."""
        ledger = self._field.ledger
        async for moment in self._field.moments(says, self._plan.every_seconds):
            event = self.voice.next_event(self._field.time_of(moment, self._plan.clock_offset_seconds))
            mark = ledger.tell(event)
            datagram = self.endpoint.prepare(self.voice.request(event), wire.NON)
            for time in range(self._plan.repeats):
                ledger.sent(mark, again=time > 0)
                if is_done(await self.endpoint.say(datagram, self._field.timing.ack_timeout_seconds)):
                    ledger.acked(mark)
                    break
            else:
                ledger.given_up(mark)
