"""The question that follows the acks: whether it is still the same topic."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaException

from agent.clock import Clock
from agent.forward.error import TopicReplacedError
from agent.forward.topic import TopicWatch, topic_id

if TYPE_CHECKING:
    from confluent_kafka.admin._topic import TopicDescription

CONFIRM_MS: Final = 1_000
"""Shortest time between two questions: what is acked meanwhile shares the next answer."""


class Confirmation:
    """Asks for the topic's id after acks, one question at a time; its answer covers what was acked before it."""

    def __init__(self, watch: TopicWatch, expected: str, clock: Clock) -> None:
        self.expected = expected
        """The id that was read before the first send."""
        self._watch = watch
        self._clock = clock
        self._asked = clock.monotonic() - CONFIRM_MS
        self._question: Future[TopicDescription] | None = None
        self._covers = 0

    def ask(self, acked: int, *, at_once: bool = False) -> None:
        """Ask on behalf of the oldest acked batches, where nothing is asked yet and it is time."""
        now = self._clock.monotonic()
        if self._question is None and acked and (at_once or now - self._asked >= CONFIRM_MS):
            self._question, self._covers, self._asked = self._watch.ask(), acked, now

    def take(self) -> int:
        """Give how many of the oldest acked batches are confirmed by now; raise where they never will be.

        Raises TopicReplacedError or TopicMissingError; UnreachableError only means that the question is asked again.
        """
        if self._question is None or not self._question.done():
            return 0
        question, self._question = self._question, None
        try:
            actual = topic_id(question.result())
        except KafkaException as error:
            raise self._watch.explain(error) from error
        if actual != self.expected:
            raise TopicReplacedError(f"the topic is {actual} now, and was {self.expected} before the first send")
        return self._covers
