"""Which topic it is that bears our topic's name: Kafka's own id for it changes when it is deleted and made anew."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from agent.forward.client import REQUEST_SECONDS_MAX, LastError, code_of, describe, wait_for
from agent.forward.error import TopicMissingError, UnreachableError
from contract import topics

if TYPE_CHECKING:
    from confluent_kafka.admin._topic import TopicDescription


class TopicWatch:
    """Reads the topic's id."""

    def __init__(self, admin: AdminClient, name: str, last_error: LastError) -> None:
        self._admin = admin
        self._name = name
        self._last_error = last_error

    def ask(self) -> Future[TopicDescription]:
        """Ask for the topic; the answer is as of some moment after this call."""
        return self._admin.describe_topics(TopicCollection([self._name]), request_timeout=REQUEST_SECONDS_MAX)[
            self._name
        ]

    def read(self, stop: threading.Event) -> str:
        """Ask, wait, and give the id."""
        question = self.ask()
        try:
            return topic_id(wait_for(question, stop))
        except KafkaException as error:
            raise self.explain(error) from error

    def explain(self, error: KafkaException) -> TopicMissingError | UnreachableError:
        """Tell a topic that is missing from a broker that does not answer."""
        if code_of(error) == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return TopicMissingError(f"topic {self._name} does not exist")
        return UnreachableError(self._last_error.text or describe(error))


def topic_id(description: TopicDescription) -> str:
    """Write the id as Kafka's own tools show it (base64url)."""
    return str(description.topic_id).translate(_TO_URL_SAFE)


_TO_URL_SAFE = str.maketrans("+/", "-_")


def create_command(bootstrap_servers: str, name: str) -> str:
    """Give the command that creates the topic with the settings without which the promise does not hold."""
    options = " ".join(f"--config {key}={value}" for key, value in topics.settings().items())
    return (
        f"kafka-topics.sh --bootstrap-server {bootstrap_servers} --create --topic {name} "
        f"--partitions {topics.PARTITIONS} --replication-factor {topics.REPLICAS} {options}"
    )
