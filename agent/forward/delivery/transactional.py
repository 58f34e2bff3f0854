"""Calls to a transactional producer, each with a deadline."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaException, Producer, TopicPartition

from agent.forward.delivery.transaction import Marker
from agent.forward.errors import SessionError, UnreachableError
from agent.forward.kafka.attempt import attempt
from agent.forward.kafka.client import LastError, describe

STEP_SECONDS_MAX: Final = 12.0
"""How long one call may take before its producer is abandoned."""
EXPLAIN_SECONDS: Final = 1.0
"""How long the client may take to explain why a transaction has failed."""
MARKER_PARTITION: Final = 0


@dataclass(frozen=True, slots=True)
class TransactionalProducer:
    """A producer that holds the gateway's transactional id."""

    producer: Producer
    errors: LastError
    group: Any
    """The group's metadata, an opaque object of the client."""

    def begin(self) -> None:
        try:
            self.producer.begin_transaction()
        except KafkaException as error:
            raise SessionError(describe(error)) from error

    def commit(self, topic: str, marker: Marker, stop: threading.Event) -> None:
        """Commit, with the marker; where it raises, the next session determines the outcome from the records."""
        offset = TopicPartition(topic, MARKER_PARTITION, marker.number, str(marker))

        def commit() -> None:
            self.producer.send_offsets_to_transaction([offset], self.group, STEP_SECONDS_MAX)
            self.producer.commit_transaction(STEP_SECONDS_MAX)

        step(commit, "the transaction's commit", self.errors, stop)

    def abort(self, stop: threading.Event) -> None:
        """Abort the open transaction: no reader of committed records receives it."""
        step(lambda: self.producer.abort_transaction(STEP_SECONDS_MAX), "the transaction's end", self.errors, stop)

    def explain_failure(self, topic: str, failure: str) -> str:
        """Return why a transaction has failed: a record's own report may only state that it was purged."""
        try:
            self.producer.send_offsets_to_transaction(
                [TopicPartition(topic, MARKER_PARTITION, 0)], self.group, EXPLAIN_SECONDS
            )
        except KafkaException as error:
            return describe(error)
        return failure

    def check(self) -> None:
        """Raise SessionError after a fatal error."""
        if self.errors.fatal is not None:
            raise SessionError(self.errors.fatal)


def step(call: Any, what: str, errors: LastError, stop: threading.Event) -> Any:
    """Call with a deadline; raise SessionError where the call fails, UnreachableError where it hangs."""
    try:
        return attempt(call, STEP_SECONDS_MAX, stop, what)
    except UnreachableError as hanging:
        raise UnreachableError(errors.text or str(hanging)) from hanging
    except KafkaException as error:
        raise SessionError(f"{what}: {describe(error)}") from error
