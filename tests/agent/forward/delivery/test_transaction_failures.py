"""The report of a transaction that fails while events are passed to the client."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from agent.forward.delivery.exactly_once import TransactionalSession
from agent.forward.delivery.in_flight import InFlightBatch
from agent.forward.delivery.session import SessionContext
from agent.forward.delivery.transactional import TransactionalProducer
from agent.forward.errors import SessionError
from agent.forward.kafka.client import LastError


def test_a_transaction_that_has_failed_meanwhile_is_reported_with_its_reason() -> None:
    class FailedProducer:
        """Has librdkafka's state after a delivery report has ended its transaction."""

        def produce(self, *_: Any, **__: Any) -> None:
            raise KafkaException(KafkaError(KafkaError._STATE, "Unable to produce message: Local: Erroneous state"))

        def send_offsets_to_transaction(self, *_: Any) -> None:
            raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed"))

    context = cast("SessionContext", SimpleNamespace(topic="events", gateway="gw1"))
    transactions = TransactionalProducer(cast("Any", FailedProducer()), LastError(), None, 9.0)
    topic = cast("Any", SimpleNamespace(leader_epochs={}))
    session = TransactionalSession(context, transactions, cast("Any", None), topic, None, 0, set())

    with pytest.raises(SessionError, match="Topic authorization failed"):
        session._hand_over((b"d", b"{}", []), InFlightBatch(1, {}))
