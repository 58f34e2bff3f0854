"""What one connection brings: each message to the pipeline, and its acknowledgement back in the order of receipt."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from agent.decode import REJECTED_BYTES_MAX
from agent.delivery import Answer, Delivery, Receive, Record, Status
from agent.mqtt.ack_order import Turn, Turns
from agent.mqtt.device_list import Reading
from agent.mqtt.packets import Message
from agent.mqtt.pending import Held, Holding
from agent.mqtt.routes import Routes
from agent.mqtt.zigbee_names import Kind
from agent.pace import TURN_SECONDS_MAX

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Tuning:
    """The bounds of what is in work."""

    in_work_max: int = 1_000
    """Messages; our own bound, since not every broker heeds Receive Maximum."""
    in_work_bytes_max: int = 256 << 10
    """Of their topics and payloads. A payload of 12 kB can hold 1,024 events, which take 0.5 MB while in work."""
    unknown_seconds: float = 10.0
    """How long a device that no list names is waited for, once there is a list."""
    unlisted_seconds: float = 60.0
    """How long the first list is waited for. A broker sends the one that it has at once, Zigbee2MQTT publishes its own
    seconds after its start; where there is none, whatever waits keeps the acknowledgements behind it back."""
    held_max: int = 100
    """Messages that wait for a newer list; with one more, the oldest waits no longer. A device that joins is on the
    list within seconds; strange names must not fill what is in work."""
    held_bytes_max: int = 128 << 10
    """Of their topics and payloads, but for a single message: half of what may be in work, for the same reason."""


class Line(Protocol):
    """The connection as the reception sees it."""

    def acknowledge(self, message_id: int) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...


class Reception:
    """Takes the messages of one connection; `over` gets the reason when it must end for the sake of its messages."""

    def __init__(self, routes: Routes, receive: Receive, record: Record, line: Line, tuning: Tuning) -> None:
        self._routes = routes
        self._receive = receive
        self._record = record
        self._line = line
        self._tuning = tuning
        self._loop = asyncio.get_running_loop()
        self._turns = Turns(line.acknowledge)
        self._holding = Holding()
        self._timer: asyncio.TimerHandle | None = None
        self._submitted = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._readings: deque[Reading] = deque()
        self._going_on: asyncio.Handle | None = None
        self._full = False
        self._paused = False
        self._skipping = False
        self._stopped = False
        self._waiting_is_said = False
        self._unreadable_is_said = False
        self.lost = 0
        """Messages at QoS 0 that could not be taken, and that the broker does not keep."""
        self.ignored = 0
        """Messages that no subscription of the settings means."""
        self.fetches_again = False
        """Whether it ended only to have again what it has passed over."""
        self.over: asyncio.Future[str] = self._loop.create_future()

    @property
    def acknowledged(self) -> int:
        """How many messages were acknowledged."""
        return self._turns.acknowledged

    def take(self, message: Message) -> None:
        """Take a message as it comes from the broker."""
        topic, reading = message.topic, self._routes.reading(message)
        if message.size > self._routes.body_bytes_max:
            message = message._replace(payload=message.payload[:REJECTED_BYTES_MAX])  # no more of it is of use
        elif message.size > len(message.payload) and not message.fault:
            message = message._replace(fault="its properties are too long")  # its payload lies behind what is kept
        if self._skipping:
            unheeded = not (message.message_id or message.retain or reading)
            self.lost += unheeded and self._routes.may_be_event(topic, message.payload)
        else:
            turn = self._turns.open(message.message_id, len(topic) + len(message.payload))
            if message.fault:
                self._reject(turn, self._routes.stray(message), f"not a message that can be taken: {message.fault}")
            elif message.retain or reading:  # what was before we came is state, and no event
                self._finish(turn)
            else:
                self._route(turn, message)
        if reading and not self._stopped:
            self._readings.append(reading)
            self._go_on_soon()
        self._heed_bounds()

    def stop(self) -> None:
        """Take nothing more; what comes yet is left to the broker."""
        self._skipping = self._stopped = True
        self._readings.clear()
        self._holding.drop_released()

    async def finished(self) -> None:
        """Wait for the outcomes of all that the pipeline has been given."""
        await self._idle.wait()

    def close(self) -> None:
        """Wait for nothing more."""
        for handle in (self._timer, self._going_on):
            if handle is not None:
                handle.cancel()

    def _go_on_soon(self) -> None:
        """Go on with lists and with what has waited for them; what comes behind them waits meanwhile."""
        if self._going_on is None:
            self._going_on = self._loop.call_soon(self._go_on)
        self._pace_line()

    def _go_on(self) -> None:
        """Go on for one turn of the loop."""
        self._going_on = None
        end = self._loop.time() + TURN_SECONDS_MAX
        while self._is_behind:
            if self._holding.released:
                self._zigbee(self._holding.next_released())
            else:
                self._read_list(lambda: self._loop.time() >= end)
            if self._loop.time() >= end:
                break
        if self._is_behind:
            self._going_on = self._loop.call_soon(self._go_on)
        else:
            self._return_for_skipped()
        self._pace_line()

    @property
    def _is_behind(self) -> bool:
        """Whether something that has come before has to be dealt with before what comes next."""
        return self._holding.released or bool(self._readings)

    def _read_list(self, enough: Callable[[], bool]) -> None:
        """Read the first list until it is enough; once it is learned, look again at what waits."""
        names, reading = self._routes.names, self._readings[0]
        told = names.told
        learned = reading.go_on(enough)
        if learned is None:
            return
        self._readings.popleft()
        if learned:
            self._holding.release(self._loop.time() if names.told and not told else None)
        elif not self._unreadable_is_said:
            self._unreadable_is_said = True
            _log.warning("mqtt: list=unreadable topic=%s reason=%r", reading.topic, reading.problem)

    def _route(self, turn: Turn, message: Message) -> None:
        delivery = self._routes.own(message.topic, message.payload)
        if delivery is not None:
            self._deliver(turn, delivery, message.size)
        elif (name := self._routes.zigbee_name(message.topic)) is not None:
            self._zigbee(Held(turn, name, message.payload, message.size, self._loop.time()))
        else:
            self._ignore(turn, message.topic)

    def _ignore(self, turn: Turn, topic: str) -> None:
        """Pass over a message that no subscription means: the session keeps those of former settings."""
        self.ignored += 1
        if self.ignored == 1:
            _log.warning("mqtt=ignored topic=%r reason=%r", topic, "no subscription of the settings means it")
        self._finish(turn)

    def _zigbee(self, held: Held) -> None:
        kind, delivery = self._routes.zigbee(held.name, held.payload)
        if kind is Kind.STATE:
            self._finish(held.turn)
        elif kind is Kind.DEVICE:
            self._deliver(held.turn, delivery, held.size)
        elif self._routes.names.may_come(held.name):
            self._holding.hold(held)
            self._watch()
        else:
            self._reject(held.turn, delivery, self._routes.why_unknown)

    def _watch(self) -> None:
        """Give up what has waited for long enough, and look again when the next may have."""
        told, now, tuning = self._routes.names.told, self._loop.time(), self._tuning
        if told:
            self._give_up(self._holding.overdue(now - tuning.unknown_seconds, tuning.held_max, tuning.held_bytes_max))
        if self._timer is None and (since := self._holding.since) is not None:
            self._timer = self._loop.call_at((since if told else now) + tuning.unknown_seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self._routes.names.told and (since := self._holding.since) is not None:
            self._await_list(since)
        self._watch()
        self._return_for_skipped()

    def _await_list(self, since: float) -> None:
        if since <= self._loop.time() - self._tuning.unlisted_seconds:
            self._routes.names.give_up_list()
            _log.warning("mqtt=unlisted reason=%r", self._routes.why_unknown)
            self._holding.release()
            self._go_on_soon()
        elif not self._waiting_is_said:
            self._waiting_is_said = True
            _log.warning("mqtt=waiting for=%s hint=%r", self._routes.devices_topic, "is Zigbee2MQTT running?")

    def _give_up(self, overdue: Sequence[Held]) -> None:
        for held in overdue:
            self._routes.names.give_up(held.name)
            _, delivery = self._routes.zigbee(held.name, held.payload)
            self._reject(held.turn, delivery, self._routes.why_unknown)

    def _deliver(self, turn: Turn, delivery: Delivery, size: int) -> None:
        if size > self._routes.body_bytes_max:
            self._reject(turn, delivery, f"larger than {self._routes.body_bytes_max} bytes (mqtt.max_body_bytes)")
            return

        def respond(answer: Answer) -> None:
            self._returned()
            if answer.status in (Status.DURABLE, Status.UNAVAILABLE):
                self._settle(turn, answer)
            else:
                self._reject(turn, delivery, answer.reason)

        self._given()
        self._receive(delivery, respond)

    def _reject(self, turn: Turn, delivery: Delivery, reason: str) -> None:
        def respond(answer: Answer) -> None:
            self._returned()
            self._settle(turn, answer)

        self._given()
        self._record(delivery, reason, respond)

    def _settle(self, turn: Turn, answer: Answer) -> None:
        if answer.status is Status.DURABLE:
            self._finish(turn)
            return
        self.lost += not turn.message_id
        self.stop()
        if not self.over.done():
            self.over.set_result(answer.reason)

    def _finish(self, turn: Turn) -> None:
        self._turns.finish(turn)
        if self._full and self._has_room():
            self._full = False
            self._pace_line()

    def _heed_bounds(self) -> None:
        """At the bound, read nothing more; but while messages wait for a list, read on for the list alone."""
        if self._skipping or self._full or not self._at_bound():
            return
        if self._holding:
            self._skipping = True
        else:
            self._full = True
            self._pace_line()

    def _pace_line(self) -> None:
        """Read from the line while nothing that came before has to be finished first."""
        paused = self._full or self._is_behind
        if paused != self._paused:
            self._paused = paused
            (self._line.pause if paused else self._line.resume)()

    def _at_bound(self) -> bool:
        return len(self._turns) >= self._tuning.in_work_max or self._turns.size >= self._tuning.in_work_bytes_max

    def _has_room(self) -> bool:
        """Whether half of the bound is free, so that reading does not stop and go for each message."""
        tuning, turns = self._tuning, self._turns
        return len(turns) <= tuning.in_work_max // 2 and turns.size <= tuning.in_work_bytes_max // 2

    def _return_for_skipped(self) -> None:
        """Have the connection made anew where messages were passed over: what is not acknowledged comes again."""
        if self._skipping and not (self._stopped or self._holding or self.over.done()):
            self.fetches_again = True
            self.over.set_result("messages that came before bridge/devices are fetched again")

    def _given(self) -> None:
        self._submitted += 1
        self._idle.clear()

    def _returned(self) -> None:
        self._submitted -= 1
        if not self._submitted:
            self._idle.set()
