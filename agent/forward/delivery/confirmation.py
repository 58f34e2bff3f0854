"""The questions that follow the acks: whether it is still the same topic, and who leads its partitions."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaException

from agent.clock import Clock
from agent.forward.delivery.in_flight import Window
from agent.forward.errors import TopicReplacedError, UnreachableError
from agent.forward.kafka.client import ANSWER_SECONDS_MAX, no_answer
from agent.forward.kafka.topic import LeaderEpochs, LogEnd, TopicWatch, leader_epochs, log_end, topic_id

if TYPE_CHECKING:
    from confluent_kafka.admin._listoffsets import ListOffsetsResultInfo
    from confluent_kafka.admin._topic import TopicDescription

CONFIRM_MS: Final = 1_000
"""Shortest time between two questions: what is acked meanwhile shares the next answer."""


@dataclass(frozen=True, slots=True)
class Confirmed:
    """An answer: the topic is the same."""

    flights: int
    """How many of the oldest acked flights were acked before the question."""
    leader_epochs: LeaderEpochs
    """Of the partitions that hold them, after their last ack."""


class Confirmation:
    """Asks for the topic's id and its leaders after acks, one question at a time; it covers what was acked before."""

    def __init__(self, watch: TopicWatch, expected: str, clock: Clock) -> None:
        self.expected = expected
        """The id that was read before the first send."""
        self._watch = watch
        self._clock = clock
        self._asked = clock.monotonic_ms() - CONFIRM_MS
        self._question: _Question | None = None

    def ask(self, window: Window, *, at_once: bool = False) -> None:
        """Ask on behalf of the oldest acked flights, where nothing is asked yet and it is time."""
        now = self._clock.monotonic_ms()
        if self._question is None and window.acked and (at_once or now - self._asked >= CONFIRM_MS):
            self._asked = now
            ends = self._watch.ask_ends(window.acked_partitions())
            self._question = _Question(window.acked, self._watch.ask(), ends)

    def take(self) -> Confirmed | None:
        """Return what is confirmed by now, None where there is no answer yet; raise where it never will be.

        Raises TopicReplacedError or TopicMissingError; UnreachableError only means that the question is asked again.
        """
        if self._question is None:
            return None
        if not self._question.done:
            if self._clock.monotonic_ms() - self._asked <= ANSWER_SECONDS_MAX * 1000:
                return None
            self._question = None
            raise self._watch.explain(no_answer())
        question, self._question = self._question, None
        try:
            actual, ends = topic_id(question.topic.result()), question.log_ends()
        except KafkaException as error:
            raise self._watch.explain(error) from error
        if actual != self.expected:
            raise TopicReplacedError(f"the topic is {actual} now, and was {self.expected} before the first send")
        return Confirmed(question.flights, leader_epochs(ends))


@dataclass(frozen=True, slots=True)
class _Question:
    """What is asked and not yet taken."""

    flights: int
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
                raise UnreachableError(f"partition {partition}: its leader does not tell its epoch")
            ends[partition] = end
        return ends
