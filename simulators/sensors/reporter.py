"""A CoAP sensor that sends each event in a confirmable request until it is acknowledged.

One exchange follows RFC 7252 section 4.2: ACK_TIMEOUT, doubled for each of MAX_RETRANSMIT retransmissions of the same
datagram. After it the application sends an event with an id or a time again under a new Message ID. An event with
neither would be a new event under a new Message ID, so the same datagram is sent again, in exchanges that end before
its Message ID expires.
"""

import asyncio
from abc import ABC, abstractmethod
from dataclasses import replace
from random import Random

from contract.event import Event
from simulators import wire
from simulators.payloads import KnownBy, PayloadGenerator, identified_by
from simulators.scenario import Bug, FleetPlan, SensorKind
from simulators.sensors.endpoint import Endpoint, Entry
from simulators.sensors.field import Field

INCOMPLETE = 0x88
"""4.08: a block is missing; start again with the first (RFC 7959 section 2.9.2)."""
SUCCESS_CLASS, CLIENT_ERROR_CLASS = 2, 4


class CoapSensor(ABC):
    """One device with a CoAP endpoint."""

    def __init__(self, field: Field, generator: PayloadGenerator, plan: FleetPlan, random: Random) -> None:
        self.generator = generator
        self.endpoint = Endpoint(field.timing, random)
        self._field = field
        self._plan = plan
        self._random = random

    @abstractmethod
    async def run(self, schedule: Random) -> None:
        """Report until the run is over, and until nothing is left to be sent."""

    def next_event(self, moment: float, boot: int | None = None) -> Event:
        """Return the event of a moment of the run, by the sensor's own clock."""
        return self.generator.next_event(self._field.time_of(moment, self._plan.clock_offset_seconds), boot)

    async def settle(self, answer: wire.Message | None, *marks: int) -> bool:
        """Record an ACK or a final refusal; without one, pause before the next try, and return False."""
        if is_done(answer):
            self._field.ledger.acked(*marks)
        elif answer is not None and answer.code >> 5 == CLIENT_ERROR_CLASS and answer.code != INCOMPLETE:
            self._field.ledger.refused(*marks, code=answer.code_text)
        else:
            limit = self._field.timing.pause_seconds_max  # our own, also for the gateway's Max-Age
            pause = self._random.uniform(0.0, limit) if answer is None else min(answer.max_age_seconds, limit)
            await asyncio.sleep(pause)
            return False
        return True


class Reporter(CoapSensor):
    """A device that sends one event at a time; a sleepy one resets its Message ID and Token after each."""

    async def run(self, schedule: Random) -> None:
        boot = 0
        async for moment in self._field.moments(schedule, self._plan.every_seconds):
            if self._plan.kind is SensorKind.SLEEPY:
                self.endpoint.forget()
                boot += 1
            await self.report(self.next_event(moment, (boot or 1) if self._plan.boot else None))

    async def report(self, event: Event) -> None:
        """Record an event in the ledger and send it until it is acked, refused or given up."""
        ledger, loop = self._field.ledger, asyncio.get_running_loop()
        mark = ledger.reported(event)
        timing = self._field.timing
        last_exchange_at = loop.time() + timing.exchange_lifetime_seconds - timing.exchange_seconds_max
        can_be_sent_anew = identified_by(event) is not KnownBy.NEITHER
        datagram: bytes | None = None
        for tried in range(self._plan.tries):
            sent = self._restamped(event) if tried else event
            enter = self._entry(mark, None if sent is event else sent.time)
            if self._plan.block_bytes:
                answer = await self._in_blocks(sent, enter)
            elif datagram is None or can_be_sent_anew:
                datagram = self.endpoint.prepare(self.generator.request(sent))
                answer = await self.endpoint.exchange(datagram, enter)
            else:
                answer = await self.endpoint.exchange(datagram, enter, again=True)
            if await self.settle(answer, mark):
                return
            if not can_be_sent_anew and loop.time() > last_exchange_at:
                break
        ledger.given_up(mark)

    def _entry(self, mark: int, time: int | None) -> Entry:
        return lambda again: self._field.ledger.sent(mark, again=again, time=time)

    async def _in_blocks(self, event: Event, enter: Entry) -> wire.Message | None:
        """Send the blocks in order; only the last one counts as a transmission of the event."""
        answer: wire.Message | None = None
        for block in self.generator.request(event).blocks(self._plan.block_bytes):
            datagram = self.endpoint.prepare(block)
            answer = await self.endpoint.exchange(datagram, (lambda again: None) if block.more else enter)
            if answer is None or answer.code != wire.CONTINUE:
                return answer
        return answer

    def _restamped(self, event: Event) -> Event:
        if Bug.RESTAMPED_RESENDS not in self._plan.bugs or event.time is None:
            return event
        return replace(event, time=max(event.time + 1, self._field.clock()))


def is_done(answer: wire.Message | None) -> bool:
    """Whether the answer confirms that the events are stored."""
    return answer is not None and answer.code >> 5 == SUCCESS_CLASS and answer.code != wire.CONTINUE


class NonConfirmableSensor(CoapSensor):
    """A device that stops repeating at the first answer, and drops an event without an answer."""

    async def run(self, schedule: Random) -> None:
        ledger = self._field.ledger
        async for moment in self._field.moments(schedule, self._plan.every_seconds):
            event = self.next_event(moment)
            mark = ledger.reported(event)
            datagram = self.endpoint.prepare(self.generator.request(event), wire.NON)
            for time in range(self._plan.repeats):
                ledger.sent(mark, again=time > 0)
                if is_done(await self.endpoint.send_once(datagram, self._field.timing.ack_timeout_seconds)):
                    ledger.acked(mark)
                    break
            else:
                ledger.given_up(mark)
