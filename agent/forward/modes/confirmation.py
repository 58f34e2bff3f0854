"""The check after the acks: whether it is still the same topic, under the same leaders."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaException

from agent.clock import Clock
from agent.forward.errors import SessionError, UnreachableError
from agent.forward.kafka.client import ANSWER_SECONDS_MAX, no_answer
from agent.forward.kafka.topic import LogEnd, TopicWatch, leader_epochs, log_end, topic_id
from agent.forward.modes.in_flight import InFlightWindow
from agent.forward.receipts.round import Acked, Confirmed, SharedRound

if TYPE_CHECKING:
    from confluent_kafka.admin._listoffsets import ListOffsetsResultInfo
    from confluent_kafka.admin._topic import TopicDescription

CONFIRM_MS: Final = 1_000
"""Shortest time between two requests: acks that arrive meanwhile share the next answer."""
CONFIRM_BATCHES: Final = 500
"""Acked batches that do not wait for a shared round, so that the window never waits for a confirmation."""


class Confirmation:
    """Confirms acks by the topic's id and its leaders, asked for after them; an answer covers all earlier acks.

    The answers are those of the receipts' rounds. The session asks by itself, one request at a time, where there are
    none, for a backlog, and where the rounds fail.
    """

    def __init__(self, watch: TopicWatch, expected: str, clock: Clock, shared: SharedRound | None = None) -> None:
        self.expected = expected
        """The id that was read before the first send."""
        self._watch = watch
        self._clock = clock
        self._shared = shared
        self._since_ms = clock.monotonic_ms() - CONFIRM_MS
        """Since when acks wait, or the latest request."""
        self._request: _Request | None = None
        self._has_asked = False
        """Whether there was a request since the latest shared answer: the next one may follow soon."""
        if shared is not None:
            watch.release()

    @property
    def is_asking(self) -> bool:
        return self._request is not None

    def request(self, window: InFlightWindow, *, soon: bool = False, at_once: bool = False) -> None:
        """Note the acked batches for the next round; query their leaders where they do not wait for one.

        With `soon` they wait as if there were no rounds.
        """
        now, patience_ms = self._clock.monotonic_ms(), CONFIRM_MS
        if self._shared is not None:
            self._shared.acked = window.noted  # only here: what is being marked stays noted until it is forwarded
            if not window.acked:
                self._since_ms = now
            if window.acked < CONFIRM_BATCHES and not soon:
                patience_ms = self._shared.patience_ms
        if self._request is None and window.acked and (at_once or now - self._since_ms >= patience_ms):
            self._since_ms, self._has_asked = now, True
            ends = self._watch.request_ends(window.noted.partitions)
            self._request = _Request(now, window.noted, self._watch.request(), ends)

    def poll(self, window: InFlightWindow) -> Confirmed | None:
        """Return the answer for acked batches of the same topic, None where there is none yet.

        Raise SessionError where there will never be one, as of a topic that was deleted and recreated; call again after
        UnreachableError.
        """
        answer = self._collect_shared(window) or self._collect_own()
        if answer is not None and answer.topic_id != self.expected:
            raise SessionError(f"the topic is {answer.topic_id} now, and was {self.expected} before the first send")
        return answer

    def close(self) -> None:
        """Let no further round wait for this session."""
        if self._shared is not None:
            self._shared.acked = Acked()

    def _collect_shared(self, window: InFlightWindow) -> Confirmed | None:
        answer = None if self._shared is None else self._shared.collect(window)
        if answer is not None and self._request is None:
            self._since_ms = self._clock.monotonic_ms()
            if not self._has_asked:
                self._watch.release()
            self._has_asked = False
        return answer

    def _collect_own(self) -> Confirmed | None:
        if self._request is None:
            return None
        if not self._request.done:
            if self._clock.monotonic_ms() - self._request.at_ms <= ANSWER_SECONDS_MAX * 1000:
                return None
            self._request = None
            raise self._watch.explain(no_answer())
        request, self._request = self._request, None
        try:
            return Confirmed(request.acked, topic_id(request.topic.result()), leader_epochs(request.log_ends()))
        except KafkaException as error:
            raise self._watch.explain(error) from error


@dataclass(frozen=True, slots=True)
class _Request:
    """A request whose answer is outstanding."""

    at_ms: int
    acked: Acked
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
