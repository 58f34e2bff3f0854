"""A sensor that sends each event in a non-confirmable request, repeated a few times under one Message ID."""

from __future__ import annotations

from random import Random

from simulators import wire
from simulators.payloads import PayloadGenerator
from simulators.scenario import FleetPlan
from simulators.sensors.endpoint import Endpoint
from simulators.sensors.field import Field
from simulators.sensors.reporter import is_done


class NonConfirmableSensor:
    """One device; it stops repeating at the first answer, and drops an event without an answer."""

    def __init__(self, field: Field, generator: PayloadGenerator, plan: FleetPlan, random: Random) -> None:
        self.generator = generator
        self.endpoint = Endpoint(field.timing, random)
        self._field = field
        self._plan = plan

    async def run(self, schedule: Random) -> None:
        """Report until the run is over."""
        ledger = self._field.ledger
        async for moment in self._field.moments(schedule, self._plan.every_seconds):
            event = self.generator.next_event(self._field.time_of(moment, self._plan.clock_offset_seconds))
            mark = ledger.reported(event)
            datagram = self.endpoint.prepare(self.generator.request(event), wire.NON)
            for time in range(self._plan.repeats):
                ledger.sent(mark, again=time > 0)
                if is_done(await self.endpoint.send_once(datagram, self._field.timing.ack_timeout_seconds)):
                    ledger.acked(mark)
                    break
            else:
                ledger.given_up(mark)
