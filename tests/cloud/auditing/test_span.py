"""Which offsets of the topic an audit reads."""

from __future__ import annotations

from typing import cast

from cloud.audit import span_to_read
from cloud.auditing.store import Store, TopicSpan
from cloud.auditing.topic import Topic


class State:
    """A topic and the results of earlier audits; offsets by partition."""

    def __init__(self, earliest: dict[int, int], receipted: dict[int, int], audited: dict[int, int]) -> None:
        self._earliest, self._receipted, self._audited = earliest, receipted, audited

    def id(self) -> str:
        return "t"

    def earliest(self) -> dict[int, int]:
        return self._earliest

    def receipted(self, _group: str) -> dict[int, int]:
        return self._receipted

    def ends(self, _topic_id: str) -> dict[int, int]:
        return self._audited

    def span(self) -> TopicSpan:
        return span_to_read(cast("Topic", self), cast("Store", self), "g")


def test_an_audit_continues_at_the_end_of_the_last_one() -> None:
    assert State({0: 3}, {0: 9}, {0: 5}).span() == TopicSpan("t", {0: 5}, {0: 9}, 0)
    assert State({0: 3}, {0: 9}, {}).span() == TopicSpan("t", {0: 3}, {0: 9}, 3)


def test_of_a_partition_without_a_receipt_nothing_is_read_and_the_others_are() -> None:
    """Spark refuses to read a topic of which a partition has no offsets; the job has not met the added one yet."""
    assert State({0: 0, 1: 0}, {0: 9}, {0: 5}).span() == TopicSpan("t", {0: 5, 1: 0}, {0: 9, 1: 0}, 0)


def test_receipts_of_partitions_that_the_topic_no_longer_has_are_left_out() -> None:
    assert State({0: 0}, {0: 9, 1: 4}, {}).span() == TopicSpan("t", {0: 0}, {0: 9}, 0)
