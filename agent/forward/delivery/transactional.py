"""A producer that holds the name, and its calls, none of which anybody waits for for ever."""

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
"""How long one step may take before its producer is given up."""
WHY_SECONDS: Final = 1.0
"""How long the client may take to say why a transaction has failed."""
MARKER_PARTITION: Final = 0


@dataclass(frozen=True, slots=True)
class Transactions:
    """A producer that holds the name, and its calls."""

    producer: Producer
    errors: LastError
    group: Any
    """The group's metadata, as the client wants it."""

    def begin(self) -> None:
        try:
            self.producer.begin_transaction()
        except KafkaException as error:
            raise SessionError(describe(error)) from error

    def commit(self, topic: str, marker: Marker, stop: threading.Event) -> None:
        """Commit, the marker in it; where it raises, the records tell at the next session whether it was done."""
        offset = TopicPartition(topic, MARKER_PARTITION, marker.number, str(marker))

        def commit() -> None:
            self.producer.send_offsets_to_transaction([offset], self.group, STEP_SECONDS_MAX)
            self.producer.commit_transaction(STEP_SECONDS_MAX)

        step(commit, "the transaction's commit", self.errors, stop)

    def abort(self, stop: threading.Event) -> None:
        """Take back what was begun: nobody ever sees its records."""
        step(lambda: self.producer.abort_transaction(STEP_SECONDS_MAX), "the transaction's end", self.errors, stop)

    def why(self, topic: str, failure: str) -> str:
        """Ask the client why a transaction has failed: a record's own report may only say that it was purged."""
        try:
            self.producer.send_offsets_to_transaction(
                [TopicPartition(topic, MARKER_PARTITION, 0)], self.group, WHY_SECONDS
            )
        except KafkaException as error:
            return describe(error)
        return failure

    def check(self) -> None:
        """Raise SessionError where the producer is of no more use."""
        if self.errors.fatal is not None:
            raise SessionError(self.errors.fatal)


def step(call: Any, what: str, errors: LastError, stop: threading.Event) -> Any:
    """Make a call that may hang; raise SessionError where it fails."""
    try:
        return attempt(call, STEP_SECONDS_MAX, stop, what)
    except UnreachableError as error:
        raise UnreachableError(errors.text or str(error)) from error
    except KafkaException as error:
        raise SessionError(f"{what}: {describe(error)}") from error
