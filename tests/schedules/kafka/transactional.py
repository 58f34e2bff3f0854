"""A transactional producer as the agent uses it, on the simulated cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tests.schedules.kafka.clients import FENCED, RETRY_SECONDS, Producer
from tests.schedules.kafka.cluster import Committed
from tests.schedules.kafka.coordinator import Refusal
from tests.schedules.kafka.log import Outcome
from tests.schedules.threads import Answer

BUSY_SECONDS: Final = 0.05
"""After which a request is sent again that the coordinator has refused for the time being."""


class TransactionalProducer(Producer):
    """A producer with a transactional id; its calls wait for the coordinator's answer."""

    _number = 0
    """Of the latest transaction that has begun, counted from 1."""

    def init_transactions(self, timeout: float) -> None:
        """Take the id, and end what an earlier producer has begun."""
        coordinator = self._cluster.coordinator
        self._call("init", lambda: coordinator.init(self._transactional_id, self._id), timeout)

    def begin_transaction(self) -> None:
        """Begin a transaction, which the coordinator hears of with its first record."""
        self._check()
        self._number += 1

    def send_offsets_to_transaction(self, positions: Sequence[TopicPartition], group: str, timeout: float) -> None:
        """Have the transaction commit a group's offsets."""
        offsets = {one.partition: Committed(one.offset, None, one.metadata or "") for one in positions}
        coordinator, name = self._cluster.coordinator, self._transactional_id
        self._call("adds offsets", lambda: coordinator.add_offsets(name, self._id, group, offsets), timeout)

    def commit_transaction(self, timeout: float) -> None:
        """Commit the transaction; an error leaves open whether it is."""
        self._end(Outcome.COMMITTED, timeout)

    def abort_transaction(self, timeout: float) -> None:
        """Abort the transaction."""
        self._end(Outcome.ABORTED, timeout)

    def flush(self, timeout: float) -> int:
        """Wait until nothing is to be reported; return how much still is."""
        end = self._scheduler.now + timeout
        while len(self) and self._scheduler.now < end:
            if not self.poll(0):
                self._scheduler.wait(BUSY_SECONDS, "flush")
        return len(self)

    def _end(self, outcome: Outcome, timeout: float) -> None:
        coordinator, name, number = self._cluster.coordinator, self._transactional_id, self._number
        self._call(outcome.value, lambda: coordinator.end(name, self._id, number, outcome), timeout)

    def _call(self, what: str, perform: Callable[[], Refusal | None], seconds: float) -> None:
        """Send a request, and again until there is an answer; raise KafkaException for an error or without one."""
        self._check()
        answer: Answer[Any] = Answer(self._scheduler)
        self._scheduler.pause(what)

        def send() -> None:
            if answer.done() or not self._process.alive:
                return
            self._cluster.request(f"{self._process.name} {what}", perform, self._alive(take))
            self._scheduler.call(RETRY_SECONDS, "retry", send)

        def take(refusal: Refusal | None) -> None:
            if refusal is Refusal.BUSY:
                self._scheduler.call(BUSY_SECONDS, "busy", send)
            else:
                answer.set_result(refusal)

        send()
        timed_out = KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer"))
        self._scheduler.call(seconds, f"{what} expires", lambda: answer.set_exception(timed_out))
        if answer.result() is Refusal.FENCED:
            self._fail_all(FENCED)
            self._check()

    def _check(self) -> None:
        """Raise the error that has ended the producer."""
        if self._fatal:
            raise KafkaException(FENCED)
