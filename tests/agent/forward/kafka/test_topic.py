"""Queries about the topic with a client that may have lost its controller."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from agent.forward.errors import TopicMissingError, UnreachableError
from agent.forward.kafka import client, topic
from agent.forward.kafka.client import LastError, open_admin
from agent.forward.kafka.topic import TopicWatch
from simulators.services.kafka.broker import Broker
from tests.agent.forward.broker import KafkaTopic


class FakeAdmin:
    """Answers every query about a topic with the same result."""

    def __init__(self, code: int) -> None:
        self._code = code

    def describe_topics(self, *_: Any, **__: Any) -> dict[str, Future[Any]]:
        answer: Future[Any] = Future()
        answer.set_exception(KafkaException(KafkaError(self._code)))
        return {"topic": answer}

    def poll(self, _: float) -> int:
        return 0


def watch(code: int) -> tuple[TopicWatch, list[FakeAdmin]]:
    opened: list[FakeAdmin] = []

    def reopen() -> AdminClient:
        opened.append(FakeAdmin(KafkaError.UNKNOWN_TOPIC_OR_PART))
        return cast("AdminClient", opened[-1])

    return TopicWatch(cast("AdminClient", FakeAdmin(code)), "topic", LastError(), reopen), opened


def test_a_client_that_got_no_answer_is_replaced() -> None:
    looked, opened = watch(KafkaError._TIMED_OUT)
    with pytest.raises(UnreachableError):
        looked.read_id(threading.Event())
    assert len(opened) == 1
    with pytest.raises(TopicMissingError):
        looked.read_id(threading.Event())
    assert len(opened) == 1, "one that answers stays"


@pytest.mark.guarantee(4)
@pytest.mark.kafka
def test_the_partitions_ends_are_waited_for_together(
    broker: Broker, kafka: KafkaTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the wall clock was set back during the request, the client itself does not end it."""
    limit = 1.0
    monkeypatch.setattr(client, "ANSWER_SECONDS_MAX", limit)
    monkeypatch.setattr(topic, "REQUEST_SECONDS_MAX", 60.0)
    looked = TopicWatch(open_admin(kafka.settings(), LastError()), kafka.topic, LastError())
    broker.pause()
    begin = time.monotonic()
    try:
        assert looked.ends(range(12), threading.Event()) == {}
    finally:
        broker.resume()
    assert time.monotonic() - begin < 6 * limit, "not one limit for each of the twelve"


@pytest.mark.guarantee(4)
@pytest.mark.kafka
def test_a_leader_without_an_answer_is_not_one_without_epochs(
    broker: Broker, kafka: KafkaTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client ends such a request without an error, with offsets below 0."""
    monkeypatch.setattr(topic, "REQUEST_SECONDS_MAX", 1.0)
    looked = TopicWatch(open_admin(kafka.settings(), LastError()), kafka.topic, LastError())
    assert looked.ends([0], threading.Event())
    broker.pause()
    try:
        assert looked.ends([0], threading.Event()) == {}
    finally:
        broker.resume()
