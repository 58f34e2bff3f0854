"""Detects that the topic was deleted and recreated, by its topic id, and reads where its partitions end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # its __all__ lacks the latter

from agent.config.settings import KafkaSettings
from agent.forward.errors import KafkaSettingsError, TopicMissingError, UnreachableError, UnsupportedError
from agent.forward.kafka.client import (
    OPENING_SECONDS_MAX,
    REQUEST_SECONDS_MAX,
    LastError,
    answer_deadline,
    code_of,
    describe,
    given_properties,
    no_answer,
    wait_for,
)
from contract import topics

if TYPE_CHECKING:
    from confluent_kafka.admin._listoffsets import ListOffsetsResultInfo
    from confluent_kafka.admin._topic import TopicDescription

PLAINTEXT = "PLAINTEXT"
"""The default of security.protocol: neither encryption nor a login."""


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The end of a partition, and the epoch of the leader that answered."""

    offset: int
    """Of the next record to be appended."""
    leader_epoch: int


NO_ID = "A" * 22
"""The id of zeros, which the clients return where a service has no topic ids."""

LeaderEpochs = Mapping[int, int]
"""The leader epoch of each partition at one time, as the leader itself answered."""


def leader_epochs(ends: Mapping[int, LogEnd]) -> LeaderEpochs:
    """Return the leader epochs alone."""
    return {partition: end.leader_epoch for partition, end in ends.items()}


@dataclass(frozen=True, slots=True)
class TopicView:
    """A snapshot of the topic; a partition without a leader is left out."""

    id: str
    ends: Mapping[int, LogEnd]
    partitions: int
    """How many there are."""


class TopicWatch:
    """Reads the topic's id, and the ends of its partitions.

    With `reopen` a client without an answer is replaced: librdkafka queries the controller about topics, and may keep
    waiting for a failed one although the cluster has elected another. Then each question may raise UnreachableError.
    """

    def __init__(
        self,
        admin: AdminClient,
        name: str,
        last_error: LastError,
        reopen: Callable[[], AdminClient] | None = None,
    ) -> None:
        self._admin: AdminClient | None = admin
        self._has_answered = False
        self._reopen = reopen
        self._name = name
        self._last_error = last_error

    def request(self) -> Future[TopicDescription]:
        """Request the topic's description; the answer is as of some time after this call."""
        topics_of = TopicCollection([self._name])
        return self._opened().describe_topics(topics_of, request_timeout=self._seconds_max)[self._name]

    def read_id(self, stop: threading.Event) -> str:
        """Return the topic's id; raise UnreachableError, TopicMissingError or UnsupportedError."""
        return topic_id(self._describe(stop))

    def read_view(self, stop: threading.Event) -> TopicView:
        """Return the topic's id and its partitions' ends; raise UnreachableError or TopicMissingError."""
        description = self._describe(stop)
        numbers = [part.id for part in description.partitions]
        return TopicView(topic_id(description), self.ends(numbers, stop), len(numbers))

    def ends(self, partitions: Iterable[int], stop: threading.Event, *, stable: bool = False) -> dict[int, LogEnd]:
        """Return the ends of partitions, without those that do not answer, such as one without a leader.

        With `stable`, where they end for a reader of committed records: below the first open transaction. Raise
        UnsupportedError where no answer has a leader epoch.
        """
        ends: dict[int, LogEnd] = {}
        without_epoch = 0
        deadline = answer_deadline()
        for partition, future in self.request_ends(partitions, stable=stable).items():
            try:
                end = log_end(wait_for(future, stop, deadline))
            except KafkaException:
                continue
            if end is None:
                without_epoch += 1
            else:
                ends[partition] = end
        self._has_answered |= bool(ends)
        if without_epoch and not ends:
            raise UnsupportedError(
                f"topic {self._name}: this Kafka service has no leader epochs (KIP-320), without which a "
                "truncation of the log would not be detected, and events would be lost: use a service of docs/kafka.md"
            )
        return ends

    def request_ends(
        self, partitions: Iterable[int], *, stable: bool = False
    ) -> dict[int, Future[ListOffsetsResultInfo]]:
        """Request the partitions' ends of their leaders; each answer is as of some time after this call."""
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the one part of it without types
        specs = {TopicPartition(self._name, number): latest for number in partitions}
        if not specs:
            return {}
        isolation = IsolationLevel.READ_COMMITTED if stable else IsolationLevel.READ_UNCOMMITTED
        futures = self._opened().list_offsets(specs, isolation_level=isolation, request_timeout=self._seconds_max)
        return {partition.partition: future for partition, future in futures.items()}

    def serve(self) -> None:
        if self._admin is not None:
            self._admin.poll(0)

    def release(self) -> None:
        """Close the client until the next question, where it can be opened again."""
        if self._reopen is not None:
            self._admin, self._has_answered = None, False

    def explain(self, error: KafkaException) -> TopicMissingError | UnreachableError:
        """Return the error class for an error: a missing topic, or a broker that does not answer."""
        if code_of(error) == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return TopicMissingError(f"topic {self._name} does not exist")
        self.serve()  # the client reports the cause only then
        self.release()
        return UnreachableError(self._last_error.text or describe(error))

    def _opened(self) -> AdminClient:
        if self._admin is None:
            assert self._reopen is not None
            try:
                self._admin = self._reopen()
            except KafkaSettingsError as error:  # the session's start could use the settings: a file was replaced
                raise UnreachableError(str(error)) from error
        return self._admin

    def _describe(self, stop: threading.Event) -> TopicDescription:
        description = self.request()
        try:
            answer = wait_for(description, stop)
        except KafkaException as error:
            raise self.explain(error) from error
        self._has_answered = True
        return answer

    @property
    def _seconds_max(self) -> float:
        return REQUEST_SECONDS_MAX if self._has_answered else OPENING_SECONDS_MAX


def log_end(answer: ListOffsetsResultInfo) -> LogEnd | None:
    """Return a leader's answer; None where it has no epoch, since the offset alone proves nothing.

    Raise KafkaException where the leader has not answered in time: librdkafka then returns an offset below 0, and no
    error.
    """
    if answer.offset < 0:
        raise no_answer()
    epoch = answer.leader_epoch
    return None if epoch is None or epoch < 0 else LogEnd(answer.offset, epoch)


def topic_id(description: TopicDescription) -> str:
    """Return the id as Kafka's own tools show it (base64url); raise UnsupportedError where the service has none."""
    found = str(description.topic_id).translate(_TO_URL_SAFE)
    if found == NO_ID:
        raise UnsupportedError(
            f"topic {description.name}: this Kafka service has no topic ids (KIP-516), so that a topic that was "
            "deleted and recreated would not be detected, and events would be lost: use a service of docs/kafka.md"
        )
    return found


_TO_URL_SAFE = str.maketrans("+/", "-_")


def create_command(settings: KafkaSettings, brokers: int = topics.REPLICAS) -> str:
    """Return the command that creates the topic with the settings that the guarantees depend on."""
    replicas = min(brokers, topics.REPLICAS)
    options = " ".join(f"--config {key}={value}" for key, value in topics.settings(replicas).items())
    return (
        f"{admin_command('kafka-topics.sh', settings)} --create --topic {settings.topic} "
        f"--partitions {topics.PARTITIONS} --replication-factor {replicas} {options}"
    )


def admin_command(program: str, settings: KafkaSettings) -> str:
    """Return the beginning of a command of Kafka's own programs; where the listener needs it, with a file for a login.

    The file has Java's properties of a user who may change topics: the agent's user may not.
    """
    try:
        given = given_properties(settings)
    except KafkaSettingsError:  # reported by what opens the client
        given = dict(settings.properties)
    needs_file = given.get("security.protocol", PLAINTEXT).upper() != PLAINTEXT
    config = " --command-config admin.properties" if needs_file else ""
    return f"{program} --bootstrap-server {settings.bootstrap_servers}{config}"


BY_KEY: Final = -1
"""The partition that the key decides."""
_SEED: Final = 0x9747B28C
_FACTOR: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def partition_of(settings: KafkaSettings, gateway: str, partitions: int) -> int:
    """Return the partition of all events of a gateway; BY_KEY where it depends on the device."""
    return BY_KEY if settings.spread == "device" else (murmur2(gateway.encode()) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """Return the hash by which Kafka's own producers choose a key's partition (Utils.murmur2), without a sign."""
    hashed = _SEED ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _FACTOR & _MASK
        hashed = (hashed * _FACTOR & _MASK) ^ ((word ^ word >> 24) * _FACTOR & _MASK)
    if rest := data[whole:]:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * _FACTOR & _MASK
    hashed = (hashed ^ hashed >> 13) * _FACTOR & _MASK
    return hashed ^ hashed >> 15
