"""The check after the acks: whether it is still the same topic, under the same leaders."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaException

from agent.clock import Clock
from agent.config.settings import ReceiptSettings
from agent.forward.errors import TopicReplacedError, UnreachableError
from agent.forward.kafka.client import ANSWER_SECONDS_MAX, no_answer
from agent.forward.kafka.topic import LeaderEpochs, LogEnd, TopicWatch, leader_epochs, log_end, topic_id
from agent.forward.modes.in_flight import InFlightWindow

if TYPE_CHECKING:
    from confluent_kafka.admin._listoffsets import ListOffsetsResultInfo
    from confluent_kafka.admin._topic import TopicDescription

CONFIRM_MS: Final = 1_000
"""Shortest time between two requests: acks that arrive meanwhile share the next answer."""
CONFIRM_MS_MAX: Final = 100_000
"""Longest time between two while there are acks: what a kill or a change of leader sends again."""
POLL_SHARE: Final = 3
"""Requests for each poll of the receipts: more would bring no receipt earlier, and take more bytes than the events."""
CONFIRM_BATCHES: Final = 100
"""Acked batches from which on the shortest time counts, so that the window never waits for a confirmation."""


def confirm_ms(receipts: ReceiptSettings) -> int:
    """Return the time between two requests while little is sent, by how often receipts are polled."""
    return min(int(receipts.poll_seconds * 1_000 / POLL_SHARE), CONFIRM_MS_MAX) if receipts.enabled else CONFIRM_MS


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The answer that the topic is the same."""

    batches: int
    """How many of the oldest acked batches were acked before the request."""
    leader_epochs: LeaderEpochs
    """Of the partitions that hold them, read after their last ack."""


class Confirmation:
    """Requests the topic's id and its leaders after acks, one request at a time; an answer covers all earlier acks."""

    def __init__(self, watch: TopicWatch, expected: str, clock: Clock, interval_ms: int = CONFIRM_MS) -> None:
        self.expected = expected
        """The id that was read before the first send."""
        self._watch = watch
        self._clock = clock
        self._interval_ms = interval_ms
        self._requested_ms = clock.monotonic_ms() - max(CONFIRM_MS, interval_ms)
        self._request: _Request | None = None

    def request(self, window: InFlightWindow, *, at_once: bool = False) -> None:
        """Query the leaders of acked batches, unless a query is outstanding or was sent too short a time ago."""
        now = self._clock.monotonic_ms()
        interval = CONFIRM_MS if window.acked >= CONFIRM_BATCHES else max(CONFIRM_MS, self._interval_ms)
        if self._request is None and window.acked and (at_once or now - self._requested_ms >= interval):
            self._requested_ms = now
            ends = self._watch.request_ends(window.acked_partitions())
            self._request = _Request(window.acked, self._watch.request(), ends)

    def poll(self) -> Confirmed | None:
        """Return the confirmation, None where there is no answer yet.

        Raise TopicReplacedError or TopicMissingError where there will never be one; call again after UnreachableError.
        """
        if self._request is None:
            return None
        if not self._request.done:
            if self._clock.monotonic_ms() - self._requested_ms <= ANSWER_SECONDS_MAX * 1000:
                return None
            self._request = None
            raise self._watch.explain(no_answer())
        request, self._request = self._request, None
        try:
            actual, ends = topic_id(request.topic.result()), request.log_ends()
        except KafkaException as error:
            raise self._watch.explain(error) from error
        if actual != self.expected:
            raise TopicReplacedError(f"the topic is {actual} now, and was {self.expected} before the first send")
        return Confirmed(request.batches, leader_epochs(ends))


@dataclass(frozen=True, slots=True)
class _Request:
    """A request whose answer is outstanding."""

    batches: int
    topic: Future[TopicDescription]
    ends: dict[int, Future[ListOffsetsResultInfo]]

    @property
    def done(self) -> bool:
        return self.topic.done() and all(end.done() for end in self.ends.values())

    def log_ends(self) -> dict[int, LogEnd]:
        """Return each partition's answer; raise KafkaException or UnreachableError where one has none."""
        ends: dict[int, LogEnd] = {}
        for partition, future in self.ends.items():
            end = log_end(future.result())
            if end is None:
                raise UnreachableError(f"partition {partition}: its leader does not report its epoch")
            ends[partition] = end
        return ends
