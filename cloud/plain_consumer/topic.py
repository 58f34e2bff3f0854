"""Which topic it is that bears our topic's name: Kafka's own id for it is another one after it was made anew."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from cloud.errors import JobError

REQUEST_SECONDS_MAX = 30.0
ANSWER_SECONDS_MAX = 40.0
"""Longer than the client, whose own error says more, but whose limit lasts longer where the wall clock is set back."""
_OF_MEMBERS = ("session.", "heartbeat.", "max.poll.", "fetch.", "queued.", "auto.", "partition.", "group.")
"""Properties that only a member of a group has; a client that asks would warn of them."""

_TO_URL_SAFE = str.maketrans("+/", "-_")


class TopicIdReader:
    """Ask the brokers for the topic's id."""

    def __init__(self, bootstrap_servers: str, properties: Mapping[str, str], topic: str) -> None:
        given = {name: value for name, value in properties.items() if not name.startswith(_OF_MEMBERS)}
        self._admin = AdminClient({**given, "bootstrap.servers": bootstrap_servers})
        self._topic = topic

    def read(self) -> str:
        """Return the id as Kafka's tools show it, as of some moment after this call; raise JobError without a topic."""
        described = self._admin.describe_topics(TopicCollection([self._topic]), request_timeout=REQUEST_SECONDS_MAX)
        try:
            return str(described[self._topic].result(ANSWER_SECONDS_MAX).topic_id).translate(_TO_URL_SAFE)
        except TimeoutError as error:
            raise JobError(f"topic {self._topic}: no answer within {ANSWER_SECONDS_MAX:g} s") from error
        except KafkaException as error:
            raise JobError(f"topic {self._topic}: {error.args[0].str()}") from error
