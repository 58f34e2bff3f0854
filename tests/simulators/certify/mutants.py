"""Mutants of the consumer without Spark, made by replacing a function in its process (simulators/launch.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from confluent_kafka import Message, TopicPartition

if TYPE_CHECKING:
    from cloud.plain_consumer.table import Place


def commits_before_the_work() -> None:
    """Give the receipts of what was polled, and write it then."""
    from cloud import consumer
    from cloud.plain_consumer.table import Place

    write = consumer.Reader._write

    def receipts_first(self: consumer.Reader, polled: Sequence[Message]) -> None:
        ahead = dict(self._places)
        for one in polled:
            partition = one.partition() or 0
            ahead[partition] = Place(ahead[partition].first, (one.offset() or 0) + 1, one.leader_epoch() or 0)
        self._receipts.commit(self._read(ahead))
        write(self, polled)

    consumer.Reader._write = receipts_first  # type: ignore[method-assign]


def ignores_the_topic_id() -> None:
    """Go on at the offsets that the table has, whatever topic they are of."""
    from cloud.plain_consumer import table

    def places(self: table.ConsumerTable, topic_id: str) -> dict[int, table.Place]:
        found = self._connection.execute(self._sql(table._READ), (self.id,)).fetchall()
        return {partition: table.Place(first, next_, epoch) for partition, first, next_, epoch, _ in found}

    table.ConsumerTable.places = places  # type: ignore[method-assign]
    table._MOVE = table._MOVE.replace(" AND topic_id = %(topic_id)s", "")


def first_too_low() -> None:
    """Claim every partition from its beginning, wherever the reading began."""
    from cloud.plain_consumer.table import ConsumerTable

    begin = ConsumerTable.begin

    def from_the_beginning(self: ConsumerTable, places: Mapping[int, Place], topic_id: str) -> None:
        begin(self, {partition: replace(place, first=0) for partition, place in places.items()}, topic_id)

    ConsumerTable.begin = from_the_beginning  # type: ignore[method-assign]


def ignores_a_truncation() -> None:
    """Go on at the offsets that the table has, whatever log they are of."""
    from cloud import consumer
    from cloud.stream.group_kafka import GroupKafka

    def positions(self: consumer.Reader, places: Mapping[int, Place]) -> list[TopicPartition]:
        return [TopicPartition(self._topic, partition, place.next) for partition, place in places.items()]

    GroupKafka.truncations = lambda self, ends: {}  # type: ignore[method-assign]
    consumer.Reader._positions = positions  # type: ignore[method-assign]
