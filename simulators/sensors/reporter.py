"""A CoAP sensor: it sends each event until it hears that the event is safe.

One exchange follows RFC 7252 section 4.2: ACK_TIMEOUT, doubled for each of MAX_RETRANSMIT retransmissions of the same
datagram. After it an event with an id or a time is sent anew, under a new Message ID, as applications do. An event with
neither may not be: under a new Message ID it is a new event by definition. Its sensor keeps to the same datagram.
"""

from __future__ import annotations

import asyncio
from random import Random

from contract.event import Event
from simulators import wire
from simulators.payloads import Kind, Voice, kind_of
from simulators.scenario import Bug, FleetPlan, Sort
from simulators.sensors.endpoint import Endpoint, Entry
from simulators.sensors.field import Field

INCOMPLETE = 0x88
"""4.08: a block is missing; begin again with the first (RFC 7959 section 2.9.2)."""
SUCCESS_CLASS, CLIENT_ERROR_CLASS = 2, 4


class Reporter:
    """One device, one event at a time; a sleepy one forgets its numbers after each."""

    def __init__(self, field: Field, voice: Voice, plan: FleetPlan, random: Random) -> None:
        self.voice = voice
        self.endpoint = Endpoint(field.timing, random)
        self._field = field
        self._plan = plan
        self._random = random

    async def live(self, says: Random) -> None:
        """Report until the run is over."""
        boot = 0
        async for moment in self._field.moments(says, self._plan.every_seconds):
            if self._plan.sort is Sort.SLEEPY:
                self.endpoint.forget()
                boot += 1
            now = self._field.time_of(moment, self._plan.clock_offset_seconds)
            await self.report(self.voice.next_event(now, (boot or 1) if self._plan.boot else None))

    async def report(self, event: Event) -> None:
        """Enter an event into the ledger, and send it until it is acked, refused or given up."""
        ledger, loop = self._field.ledger, asyncio.get_running_loop()
        mark = ledger.tell(event)
        give_up_at = loop.time() + self._field.timing.exchange_lifetime_seconds
        can_be_sent_anew = kind_of(event) is not Kind.NEITHER
        datagram: bytes | None = None
        for tried in range(self._plan.tries):
            said = self._restamped(event) if tried else event
            enter = self._entry(mark, None if said is event else said.time)
            if self._plan.block_bytes:
                answer = await self._in_blocks(said, enter)
            elif datagram is None or can_be_sent_anew:
                datagram = self.endpoint.prepare(self.voice.request(said))
                answer = await self.endpoint.exchange(datagram, enter)
            else:
                answer = await self.endpoint.exchange(datagram, enter, again=True)
            if is_done(answer):
                ledger.acked(mark)
                return
            if is_refused(answer):
                ledger.refused(mark, code=answer.code_text if answer else "")
                return
            await asyncio.sleep(pause_seconds(answer, self._field, self._random))
            if not can_be_sent_anew and loop.time() > give_up_at:
                break
        ledger.given_up(mark)

    def _entry(self, mark: int, time: int | None) -> Entry:
        return lambda again: self._field.ledger.sent(mark, again=again, time=time)

    async def _in_blocks(self, event: Event, enter: Entry) -> wire.Message | None:
        """Send the blocks one after the other; what counts as the event's transmission is the last one's."""
        answer: wire.Message | None = None
        for block in self.voice.request(event).blocks(self._plan.block_bytes):
            datagram = self.endpoint.prepare(block)
            answer = await self.endpoint.exchange(datagram, _no_entry if block.more else enter)
            if answer is None or answer.code != wire.CONTINUE:
                return answer
        return answer

    def _restamped(self, event: Event) -> Event:
        if Bug.RESTAMPED_RESENDS not in self._plan.bugs or event.time is None:
            return event
        return event._replace(time=max(event.time + 1, self._field.clock()))


def _no_entry(again: bool) -> None:
    """Leave a block that completes nothing out of the ledger."""


def is_done(answer: wire.Message | None) -> bool:
    """Whether the answer says that the events are on disk."""
    return answer is not None and answer.code >> 5 == SUCCESS_CLASS and answer.code != wire.CONTINUE


def is_refused(answer: wire.Message | None) -> bool:
    """Whether the answer says that these bytes will never be taken."""
    return answer is not None and answer.code >> 5 == CLIENT_ERROR_CLASS and answer.code != INCOMPLETE


def pause_seconds(answer: wire.Message | None, field: Field, random: Random) -> float:
    """Choose how long to wait before the next try; a gateway that is full may ask for more, up to our own bound."""
    limit = field.timing.pause_seconds_max
    return random.uniform(0.0, limit) if answer is None else min(answer.max_age_seconds, limit)
