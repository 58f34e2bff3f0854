"""Calls to a transactional producer, each with a deadline."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaException, Producer, TopicPartition

from agent.forward.delivery.transaction import Marker
from agent.forward.errors import SessionError, UnreachableError
from agent.forward.kafka.attempt import attempt
from agent.forward.kafka.client import LastError, describe

STEP_SECONDS_MAX: Final = 12.0
"""How long one call may take before its producer is abandoned."""
END_SHARE: Final = 0.9
"""How much of the client's time limit of a request the end of a transaction may take."""
EXPLAIN_SECONDS: Final = 1.0
"""How long the client may take to explain why a transaction has failed."""
MARKER_PARTITION: Final = 0


def end_seconds_max(config: Mapping[str, Any]) -> float:
    """Return how long the end of a transaction may take before its producer is abandoned.

    A client that closes a connection after its time limit sends the request again, on another one, and what it had
    written to the first may still arrive. The request does not name its transaction: it would end the next one of this
    producer, and commit a part of it. Of a producer that was abandoned, the next one's registration refuses it.
    """
    return min(STEP_SECONDS_MAX, END_SHARE * int(config["socket.timeout.ms"]) / 1000)


@dataclass(frozen=True, slots=True)
class TransactionalProducer:
    """A producer that holds the gateway's transactional id."""

    producer: Producer
    errors: LastError
    group: Any
    """The group's metadata, an opaque object of the client."""
    end_seconds: float
    """How long the end of a transaction may take."""

    def begin(self) -> None:
        try:
            self.producer.begin_transaction()
        except KafkaException as error:
            raise SessionError(describe(error)) from error

    def commit(self, topic: str, marker: Marker, stop: threading.Event) -> None:
        """Commit, with the marker; where it raises, the next session determines the outcome from the records."""
        offset = TopicPartition(topic, MARKER_PARTITION, marker.number, str(marker))

        def commit() -> None:
            self.producer.send_offsets_to_transaction([offset], self.group, self.end_seconds)
            self.producer.commit_transaction(self.end_seconds)

        step(commit, "the transaction's commit", self.errors, stop, self.end_seconds)

    def abort(self, stop: threading.Event) -> None:
        """Abort the open transaction: no reader of committed records receives it."""
        abort = partial(self.producer.abort_transaction, self.end_seconds)
        step(abort, "the transaction's end", self.errors, stop, self.end_seconds)

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


def step(call: Any, what: str, errors: LastError, stop: threading.Event, seconds_max: float = STEP_SECONDS_MAX) -> Any:
    """Call with a deadline; raise SessionError where the call fails, UnreachableError where it hangs."""
    try:
        return attempt(call, seconds_max, stop, what)
    except UnreachableError as hanging:
        raise UnreachableError(errors.text or str(hanging)) from hanging
    except KafkaException as error:
        raise SessionError(f"{what}: {describe(error)}") from error
