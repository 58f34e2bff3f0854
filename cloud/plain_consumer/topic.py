"""Detects that the topic was deleted and recreated, by its topic id."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from cloud.errors import KafkaError, StopError

REQUEST_SECONDS_MAX = 30.0
ANSWER_SECONDS_MAX = 40.0
"""Longer than the client's limit, which is late if the wall clock is set back; its own error is more precise."""
_OF_MEMBERS = ("session.", "heartbeat.", "max.poll.", "fetch.", "queued.", "auto.", "partition.", "group.")
"""Prefixes of properties of group members, about which an admin client would warn."""

_NO_ID = "A" * 22
_TO_URL_SAFE = str.maketrans("+/", "-_")


class TopicIdReader:
    """Requests the topic's id from the brokers."""

    def __init__(self, bootstrap_servers: str, properties: Mapping[str, str], topic: str) -> None:
        given = {name: value for name, value in properties.items() if not name.startswith(_OF_MEMBERS)}
        self.admin = AdminClient({**given, "bootstrap.servers": bootstrap_servers})
        self._topic = topic

    def read(self) -> str:
        """Return the topic's present id in the form of Kafka's tools; raise KafkaError where there is none."""
        described = self.admin.describe_topics(TopicCollection([self._topic]), request_timeout=REQUEST_SECONDS_MAX)
        try:
            found = str(described[self._topic].result(ANSWER_SECONDS_MAX).topic_id).translate(_TO_URL_SAFE)
        except TimeoutError as error:
            raise KafkaError(f"topic {self._topic}: no answer within {ANSWER_SECONDS_MAX:g} s") from error
        except KafkaException as error:
            raise KafkaError(f"topic {self._topic}: {error.args[0].str()}") from error
        if found == _NO_ID:
            raise StopError(f"topic {self._topic}: this Kafka service has no topic ids (KIP-516)")
        return found
