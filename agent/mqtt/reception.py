"""Processes the messages of one connection: passes them to the pipeline, and acknowledges them in order of receipt."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from agent.decode.decoded import REJECTED_BYTES_MAX
from agent.delivery import Answer, Delivery, Receive, Record, Status
from agent.mqtt.packets import Message
from agent.mqtt.pending import AckOrder, PendingAck, PendingMessage, PendingMessages
from agent.mqtt.routes import Routes
from agent.mqtt.zigbee_names import Kind, ListReader
from agent.pace import TURN_SECONDS_MAX

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReceptionLimits:
    """The bounds of the messages in progress."""

    in_progress_max: int = 1_000
    """Messages; enforced here, since not every broker observes Receive Maximum."""
    in_progress_bytes_max: int = 256 << 10
    """Of topics and payloads. A payload of 6 kB can hold 512 events, which take 0.3 MB while in progress."""
    unknown_seconds: float = 10.0
    """How long a message of an unlisted device waits for a newer list, once there is a list."""
    unlisted_seconds: float = 60.0
    """How long messages wait for the first list. A broker sends a retained list at once, Zigbee2MQTT publishes it
    seconds after its start; meanwhile a waiting message delays the acknowledgements behind it (decision 58)."""
    waiting_max: int = 100
    """Messages that wait for a newer list; with one more, the oldest is rejected. A device that joins is listed within
    seconds; unknown names must not use up the messages in progress."""
    waiting_bytes_max: int = 128 << 10
    """Of their topics and payloads, but for a single message: half of the bytes in progress, for the same reason."""


class MessageSource(Protocol):
    """The part of the connection that the reception uses."""

    def acknowledge(self, message_id: int) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...


class Reception:
    """Processes the messages of one connection; `ended` is set to the reason when the connection has to be closed."""

    def __init__(
        self, routes: Routes, receive: Receive, record: Record, source: MessageSource, limits: ReceptionLimits
    ) -> None:
        self._routes = routes
        self._receive = receive
        self._record = record
        self._source = source
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self.acks = AckOrder(source.acknowledge)
        self._pending = PendingMessages()
        self._timer: asyncio.TimerHandle | None = None
        self._submitted = 0
        self.idle = asyncio.Event()
        """Set while the pipeline has the outcomes of all submissions."""
        self.idle.set()
        self._lists: deque[ListReader] = deque()
        self._backlog_handle: asyncio.Handle | None = None
        self._full = False
        self._paused = False
        self._skipping = False
        self._stopped = False
        self._waiting_logged = False
        self._unreadable_logged = False
        self.lost = 0
        """Messages at QoS 0 that could not be accepted, and that the broker does not keep."""
        self.ignored = 0
        """Messages that no configured subscription matches."""
        self.refetches = False
        """Whether it ended only to receive skipped messages again."""
        self.ended: asyncio.Future[str] = self._loop.create_future()

    def receive(self, message: Message) -> None:
        topic, list_reader = message.topic, self._routes.list_reader(message)
        if message.size > self._routes.body_bytes_max:
            message.payload = message.payload[:REJECTED_BYTES_MAX]  # the rest is never used
        elif message.size > len(message.payload) and not message.fault:
            # Its payload is beyond the part that is kept.
            message.fault = "its properties are too long"
        if self._skipping:
            unacknowledged = not (message.message_id or message.retain or list_reader)
            self.lost += unacknowledged and self._routes.may_be_event(topic, message.payload)
        else:
            ack = self.acks.open(message.message_id, len(topic) + len(message.payload))
            if message.fault:
                malformed = self._routes.malformed_delivery(message)
                self._reject(ack, malformed, f"not a valid message: {message.fault}")
            elif message.retain or list_reader:  # retained: state from before the subscription, and no event
                self._finish(ack)
            else:
                self._route(ack, message)
        if list_reader and not self._stopped:
            self._lists.append(list_reader)
            self._schedule_backlog()
        self._check_bounds()

    def stop(self) -> None:
        """Skip further messages, which the broker keeps."""
        self._skipping = self._stopped = True
        self._lists.clear()
        self._pending.released.clear()

    def close(self) -> None:
        for handle in (self._timer, self._backlog_handle):
            if handle is not None:
                handle.cancel()

    def _schedule_backlog(self) -> None:
        """Schedule the processing of lists and released messages, which precede further messages."""
        if self._backlog_handle is None:
            self._backlog_handle = self._loop.call_soon(self._process_backlog)
        self._apply_back_pressure()

    def _process_backlog(self) -> None:
        """Process lists and released messages for one turn of the loop."""
        self._backlog_handle = None
        end = self._loop.time() + TURN_SECONDS_MAX
        while self._has_backlog:
            if self._pending.released:
                self._zigbee(self._pending.released.popleft())
            else:
                self._read_list(lambda: self._loop.time() >= end)
            if self._loop.time() >= end:
                break
        if self._has_backlog:
            self._backlog_handle = self._loop.call_soon(self._process_backlog)
        else:
            self._reconnect_for_skipped()
        self._apply_back_pressure()

    @property
    def _has_backlog(self) -> bool:
        """Whether lists or released messages have to be processed before further messages."""
        return bool(self._pending.released or self._lists)

    def _read_list(self, enough: Callable[[], bool]) -> None:
        """Read the first list until `enough` returns True; at its end, release the messages that wait for it."""
        names, (name, reading) = self._routes.names, self._lists[0]
        listed = names.has_list
        try:
            for _ in reading:
                if enough():
                    return
            self._pending.release(self._loop.time() if names.has_list and not listed else None)
        except (ValueError, RecursionError) as error:
            if not self._unreadable_logged:
                self._unreadable_logged = True
                _log.warning("list=unreadable topic=%s reason=%r", name, str(error))
        self._lists.popleft()

    def _route(self, ack: PendingAck, message: Message) -> None:
        delivery = self._routes.subscribed_delivery(message.topic, message.payload)
        if delivery is not None:
            self._deliver(ack, delivery, message.size, message.topic)
        elif (name := self._routes.zigbee_name(message.topic)) is not None:
            self._zigbee(PendingMessage(ack, name, message.payload, message.size, self._loop.time()))
        else:  # the session keeps subscriptions of former settings
            self.ignored += 1
            if self.ignored == 1:
                reason = "no subscription of the settings matches it"
                _log.warning("mqtt=ignored topic=%r reason=%r", message.topic, reason)
            self._finish(ack)

    def _zigbee(self, pending: PendingMessage) -> None:
        kind, delivery = self._routes.zigbee_delivery(pending.name, pending.payload)
        if kind is Kind.STATE:
            self._finish(pending.ack)
        elif kind is Kind.DEVICE:
            self._deliver(pending.ack, delivery, pending.size)
        elif self._routes.names.may_be_listed(pending.name):
            self._pending.add(pending)
            self._expire()
        else:
            self._reject(pending.ack, delivery, self._routes.unknown_reason)

    def _expire(self) -> None:
        """Reject the messages that have waited for too long, and set the timer for the next."""
        listed, now, limits = self._routes.names.has_list, self._loop.time(), self._limits
        if listed:
            since_max = now - limits.unknown_seconds
            for overdue in self._pending.pop_overdue(since_max, limits.waiting_max, limits.waiting_bytes_max):
                self._routes.names.mark_unknown(overdue.name)
                _, delivery = self._routes.zigbee_delivery(overdue.name, overdue.payload)
                self._reject(overdue.ack, delivery, self._routes.unknown_reason)
        if self._timer is None and (since := self._pending.since) is not None:
            self._timer = self._loop.call_at((since if listed else now) + limits.unknown_seconds, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if not self._routes.names.has_list and (since := self._pending.since) is not None:
            self._await_list(since)
        self._expire()
        self._reconnect_for_skipped()

    def _await_list(self, since: float) -> None:
        if since <= self._loop.time() - self._limits.unlisted_seconds:
            self._routes.names.list_missing = True
            _log.warning("mqtt=unlisted reason=%r", self._routes.unknown_reason)
            self._pending.release()
            self._schedule_backlog()
        elif not self._waiting_logged:
            self._waiting_logged = True
            _log.warning("mqtt=waiting for=%s hint=%r", self._routes.devices_topic, "is Zigbee2MQTT running?")

    def _deliver(self, ack: PendingAck, delivery: Delivery, size: int, subscribed: str = "") -> None:
        """Pass on a delivery; `subscribed` is the topic of a message that [[mqtt.subscriptions]] match."""
        if size > self._routes.body_bytes_max:
            self._reject(ack, delivery, f"larger than {self._routes.body_bytes_max} bytes (mqtt.max_body_bytes)")
            return

        def respond(answer: Answer) -> None:
            if subscribed and answer.status is not Status.UNAVAILABLE:
                self._routes.note(subscribed, answer.reason, confirmed=bool(ack.message_id))
            self._end_submission(ack, answer)

        self._begin_submission()
        self._receive(delivery, respond)

    def _reject(self, ack: PendingAck, delivery: Delivery, reason: str) -> None:
        self._begin_submission()
        self._record(delivery, reason, partial(self._end_submission, ack))

    def _begin_submission(self) -> None:
        self._submitted += 1
        self.idle.clear()

    def _end_submission(self, ack: PendingAck, answer: Answer) -> None:
        self._submitted -= 1
        if not self._submitted:
            self.idle.set()
        if answer.status is Status.DURABLE:
            self._finish(ack)
            return
        self.lost += not ack.message_id
        self.stop()
        if not self.ended.done():
            self.ended.set_result(answer.reason)

    def _finish(self, ack: PendingAck) -> None:
        self.acks.finish(ack)
        # Half of the bound is to be free, so that reading is not paused and resumed for each message.
        limits, acks = self._limits, self.acks
        if self._full and 2 * len(acks) <= limits.in_progress_max and 2 * acks.size <= limits.in_progress_bytes_max:
            self._full = False
            self._apply_back_pressure()

    def _check_bounds(self) -> None:
        """At the bound, stop reading; while messages wait for a list, skip all but lists instead."""
        limits, acks = self._limits, self.acks
        at_bound = len(acks) >= limits.in_progress_max or acks.size >= limits.in_progress_bytes_max
        if self._skipping or self._full or not at_bound:
            return
        if self._pending:
            self._skipping = True
        else:
            self._full = True
            self._apply_back_pressure()

    def _apply_back_pressure(self) -> None:
        """Pause or resume the connection: it is read while the bounds permit, and there is no backlog."""
        paused = self._full or self._has_backlog
        if paused != self._paused:
            self._paused = paused
            (self._source.pause if paused else self._source.resume)()

    def _reconnect_for_skipped(self) -> None:
        """End the connection where messages were skipped: the broker then sends them again."""
        if self._skipping and not (self._stopped or self._pending or self.ended.done()):
            self.refetches = True
            self.ended.set_result("messages from before bridge/devices are fetched again")
