"""Requests to Kafka by librdkafka: the groups, the topic's log, and the receipts. No group is joined."""

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar, cast

from confluent_kafka import Consumer, IsolationLevel, KafkaException, Message, TopicCollection, TopicPartition
from confluent_kafka import KafkaError as Code
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its __all__ lacks some of them
    AdminClient,
    ConfigResource,
    OffsetSpec,
)

from cloud.committed import Committed
from cloud.errors import KafkaError, StopError
from cloud.runtime.unbounded_calls import within
from cloud.stream.topic_log import NO_ID, LogEnd
from cloud.table.commits import Offsets

ANSWER_SECONDS_MAX = 10.0
LOOK_BACK_OFFSETS = 100
"""How far before an offset its last record is looked for first; markers of transactions have offsets as well."""
LOOK_BACK_FACTOR = 1_000
POLL_SECONDS = 0.5
_OF_MEMBERS = ("session.", "heartbeat.", "max.poll.", "fetch.", "queued.", "auto.", "partition.", "group.")
"""Prefixes of properties of group members, about which an admin client would warn."""
_TO_URL_SAFE = str.maketrans("+/", "-_")
_NOTHING_THERE = (Code._PARTITION_EOF, Code._AUTO_OFFSET_RESET)
"""Beyond the end of the log, perhaps far beyond it."""
_Answer = TypeVar("_Answer")


class GroupKafka:
    """A `TopicClient` for one topic, which also reads groups.

    After a failure its clients are replaced: one that has lost a group's coordinator may never find another.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        properties: Mapping[str, str],
        reader_group: str = "oncegate-relay",
        member: Consumer | None = None,
    ) -> None:
        """`reader_group` is named by a reader that joins none; `member` commits for its group, where there is one."""
        self._topic = topic
        self._settings: dict[str, Any] = {**properties, "bootstrap.servers": bootstrap_servers}
        self._reader_group = reader_group
        self._member = member
        self._open()

    def _open(self) -> None:
        of_admin = {name: value for name, value in self._settings.items() if not name.startswith(_OF_MEMBERS)}
        self._admin = AdminClient(of_admin)
        self._groups: dict[str, Consumer] = {}

    def topic_id(self) -> str:
        """Return the topic's present id in the form of Kafka's tools; raise KafkaError where there is no topic."""
        what = TopicCollection([self._topic])
        asked = self._admin.describe_topics(what, request_timeout=ANSWER_SECONDS_MAX)[self._topic]
        found = self._answer(lambda: str(asked.result(ANSWER_SECONDS_MAX).topic_id), f"topic {self._topic}")
        if found.translate(_TO_URL_SAFE) == NO_ID:
            raise StopError(f"topic {self._topic}: this Kafka service has no topic ids (KIP-516)")
        return found.translate(_TO_URL_SAFE)

    def is_compacted(self) -> bool:
        """Whether Kafka compacts the topic; False also without the right to read its settings."""
        what = ConfigResource(ConfigResource.Type.TOPIC, self._topic)
        asked = self._admin.describe_configs([what], request_timeout=ANSWER_SECONDS_MAX)[what]
        try:
            found = asked.result(ANSWER_SECONDS_MAX)
        except KafkaException as error:
            if error.args[0].code() == Code.TOPIC_AUTHORIZATION_FAILED:
                return False
            raise KafkaError(f"topic {self._topic}: its settings cannot be read: {error.args[0].str()}") from error
        except TimeoutError as error:
            raise KafkaError(f"topic {self._topic}: its settings cannot be read in time") from error
        return "compact" in str(found["cleanup.policy"].value)

    def partitions(self) -> list[int]:
        """Return the topic's partitions; the question also renews what the client knows of their leaders."""
        described = self._answer(
            lambda: self._admin.list_topics(self._topic, ANSWER_SECONDS_MAX), "the topic's partitions"
        )
        return sorted(described.topics[self._topic].partitions)

    def earliest(self, partitions: Iterable[int]) -> Offsets:
        found = self._list(partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]  # it has no types
        return {partition: end.offset for partition, end in found.items()}

    def ends(self, partitions: Iterable[int], /) -> dict[int, LogEnd]:
        found = self._list(partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]  # it has no types
        if any(end.leader_epoch is None or end.leader_epoch < 0 for end in found.values()):
            raise StopError(f"topic {self._topic}: this Kafka service has no leader epochs (KIP-320)")
        return found

    def members(self, group: str) -> frozenset[str]:
        asked = self._admin.describe_consumer_groups([group], request_timeout=ANSWER_SECONDS_MAX)[group]
        found = self._answer(lambda: asked.result(ANSWER_SECONDS_MAX), f"group {group}: its members")
        return frozenset(member.member_id for member in found.members)

    def committed(self, group: str, partitions: Iterable[int], /) -> dict[int, Committed]:
        wanted = [TopicPartition(self._topic, partition) for partition in partitions]
        ask, what = self._client(group).committed, f"group {group}: its offsets"
        found = self._answer(lambda: ask(wanted, timeout=ANSWER_SECONDS_MAX), what)
        for one in found:
            if one.error is not None:  # such as of an open transaction
                raise KafkaError(f"{what}: partition {one.partition}: {one.error.str()}")
        return {
            one.partition: Committed(one.offset, one.leader_epoch, metadata_of(one)) for one in found if one.offset >= 0
        }

    def commit(self, group: str, offsets: Offsets, metadata: Mapping[int, str], leader_epochs: Offsets, /) -> None:
        places = [
            TopicPartition(self._topic, partition, offset, metadata[partition], leader_epochs.get(partition, -1))
            for partition, offset in offsets.items()
        ]
        client, what = self._client(group), f"group {group}: cannot commit offsets"
        done = self._answer(
            lambda: within(ANSWER_SECONDS_MAX, lambda: client.commit(offsets=places, asynchronous=False), what), what
        )
        for place in done or []:
            if place.error is not None:
                raise KafkaError(f"{what}: partition {place.partition}: {place.error.str()}")

    def truncations(self, places: Mapping[int, LogEnd], /) -> dict[int, str]:
        """Return the cause for each partition whose last record below an offset is of a later epoch than was read.

        The record itself tells: librdkafka sends OffsetForLeaderEpoch only once it has read from that leader.
        """
        if not places:
            return {}
        earliest = self.earliest(places)
        reader = Consumer(
            {
                **self._settings,
                "group.id": self._reader_group,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_uncommitted",
                "enable.partition.eof": True,
            }
        )
        try:
            found = {p: self._last_epoch(reader, p, place.offset, earliest[p]) for p, place in places.items()}
        finally:
            within(ANSWER_SECONDS_MAX, reader.close, "closing the client")
        return {
            partition: f"the record there is of leader epoch {epoch}, and of {places[partition].leader_epoch} was read"
            for partition, epoch in found.items()
            if epoch is not None and epoch > (places[partition].leader_epoch or 0)
        }

    def _last_epoch(self, reader: Consumer, partition: int, end: int, earliest: int) -> int | None:
        """Return the leader epoch of the last record below an offset; None where the log has none."""
        back = LOOK_BACK_OFFSETS
        while True:
            start = max(earliest, end - back)
            epoch = self._read_last(reader, partition, start, end)
            if epoch is not None or start == earliest:
                return epoch
            back *= LOOK_BACK_FACTOR

    def _read_last(self, reader: Consumer, partition: int, start: int, end: int) -> int | None:
        reader.assign([TopicPartition(self._topic, partition, start)])
        deadline, found = time.monotonic() + ANSWER_SECONDS_MAX, None
        while time.monotonic() < deadline:
            message = reader.poll(POLL_SECONDS)
            if message is None:
                continue
            error = message.error()
            if error is not None and error.code() not in _NOTHING_THERE:
                raise KafkaError(f"topic {self._topic}, partition {partition}: {error.str()}")
            if error is not None or (message.offset() or 0) >= end:
                return found
            found = message.leader_epoch()
            if message.offset() == end - 1:
                return found
        raise KafkaError(f"topic {self._topic}, partition {partition}: not read within {ANSWER_SECONDS_MAX:g} s")

    def _list(self, partitions: Iterable[int], spec: OffsetSpec) -> dict[int, LogEnd]:
        wanted = {TopicPartition(self._topic, partition): spec for partition in partitions}
        if not wanted:
            return {}
        asked: Mapping[TopicPartition, Future[Any]] = self._admin.list_offsets(
            wanted, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=ANSWER_SECONDS_MAX
        )
        found = {place.partition: self._answer(one.result, "the log's ends") for place, one in asked.items()}
        if any(one.offset < 0 for one in found.values()):  # librdkafka's form of no answer
            raise KafkaError(f"topic {self._topic}: a partition has no leader")
        return {partition: LogEnd(one.offset, one.leader_epoch) for partition, one in found.items()}

    def _client(self, group: str) -> Consumer:
        if self._member is not None:
            return self._member
        if group not in self._groups:
            self._groups[group] = Consumer({**self._settings, "group.id": group, "enable.auto.commit": False})
        return self._groups[group]

    def _answer(self, call: Callable[[], _Answer], what: str) -> _Answer:
        try:
            return call()
        except (KafkaException, KafkaError, TimeoutError) as error:
            self._open()
            text = error.args[0].str() if isinstance(error, KafkaException) else str(error) or "no answer"
            raise KafkaError(f"{what}: {text}") from error


def metadata_of(committed: TopicPartition) -> str:
    """Return the metadata, behind which the client may return foreign bytes."""
    try:
        return committed.metadata or ""
    except UnicodeDecodeError as error:
        return str(error.object.decode(errors="replace"))


def headers_of(message: Message) -> list[tuple[str, bytes | None]]:
    """Return a record's headers, once; none where a name is no UTF-8, for which the client has no form."""
    try:
        return cast("list[tuple[str, bytes | None]]", message.headers() or [])
    except (SystemError, UnicodeDecodeError):  # the former until it tells of the latter
        return []
