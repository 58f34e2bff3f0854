"""The clients that the forwarder has open."""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient


def follow_clients(monkeypatch: pytest.MonkeyPatch) -> WeakSet[object]:
    """Return the set of the clients that sessions open from now on, each as long as it is open."""
    clients: WeakSet[object] = WeakSet()

    class OpenProducer(Producer):
        def __init__(self, config: dict[str, Any]) -> None:
            super().__init__(config)
            clients.add(self)

    class OpenConsumer(Consumer):
        def __init__(self, config: dict[str, Any]) -> None:
            super().__init__(config)
            clients.add(self)

    class OpenAdminClient(AdminClient):
        def __init__(self, config: dict[str, Any]) -> None:
            super().__init__(config)
            clients.add(self)

    for mode in ("at_least_once", "at_most_once", "exactly_once"):
        monkeypatch.setattr(f"agent.forward.delivery.{mode}.Producer", OpenProducer)
    monkeypatch.setattr("agent.forward.kafka.client.Consumer", OpenConsumer)
    monkeypatch.setattr("agent.forward.kafka.client.AdminClient", OpenAdminClient)
    return clients
