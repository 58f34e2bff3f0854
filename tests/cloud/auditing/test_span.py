"""Which offsets of the topic an audit reads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from cloud.audit import span_to_read
from cloud.auditing.store import Store, TopicSpan
from cloud.auditing.topic import Topic
from cloud.committed import Committed
from cloud.errors import StopError
from contract.receipt import Receipt

TOPIC, OTHER = "t" * 22, "u" * 22


class State:
    """A topic and the results of earlier audits; offsets by partition."""

    def __init__(self, earliest: dict[int, int], receipted: dict[int, int], audited: dict[int, int]) -> None:
        self._earliest, self._audited = earliest, audited
        self._committed = {p: Committed(offset, 5, str(Receipt("a", 0, TOPIC))) for p, offset in receipted.items()}

    def id(self) -> str:
        return TOPIC

    def earliest(self) -> dict[int, int]:
        return self._earliest

    def committed(self, _group: str) -> dict[int, Committed]:
        return self._committed

    def latest(self) -> dict[int, tuple[int, int]]:
        return dict.fromkeys(self._earliest, (9, 5))

    def ends(self, _topic_id: str) -> dict[int, int]:
        return self._audited

    def span(self, **changed: Any) -> TopicSpan:
        self._committed |= {0: replace(self._committed[0], **changed)}
        return span_to_read(cast("Topic", self), cast("Store", self), "g", "a")


def test_an_audit_continues_at_the_end_of_the_last_one() -> None:
    assert State({0: 3}, {0: 9}, {0: 5}).span() == TopicSpan(TOPIC, {0: 5}, {0: 9}, 0)
    assert State({0: 3}, {0: 9}, {}).span() == TopicSpan(TOPIC, {0: 3}, {0: 9}, 3)


def test_of_a_partition_without_a_receipt_nothing_is_read_and_the_others_are() -> None:
    """Spark refuses to read a topic of which a partition has no offsets; the job has not met the added one yet."""
    assert State({0: 0, 1: 0}, {0: 9}, {0: 5}).span() == TopicSpan(TOPIC, {0: 5, 1: 0}, {0: 9, 1: 0}, 0)


def test_receipts_of_partitions_that_the_topic_no_longer_has_are_left_out() -> None:
    assert State({0: 0}, {0: 9, 1: 4}, {}).span() == TopicSpan(TOPIC, {0: 0}, {0: 9}, 0)


@pytest.mark.guarantee(5)
@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"metadata": ""}, "it was committed by a foreign consumer or by a reset"),
        ({"metadata": str(Receipt("b", 0, TOPIC, "a"))}, "it is of table b, not of a"),
        ({"metadata": str(Receipt("a", 0, OTHER))}, f"it is of topic {OTHER}, not of {TOPIC}"),
        ({"metadata": str(Receipt("a", 10, TOPIC))}, "it begins at 10, above itself"),
        ({"leader_epoch": None}, "it has no leader epoch"),
        ({"leader_epoch": 6}, "it has epoch 6, and the log ends at 9 in epoch 5"),
        ({"offset": 10}, "it has epoch 5, and the log ends at 9 in epoch 5"),
    ],
)
def test_an_offset_that_is_no_receipt_of_the_table_ends_the_audit_with_the_reason(
    changed: dict[str, Any], why: str
) -> None:
    """Its records would be named as unwritten, or an audit would be whole that has read nothing."""
    with pytest.raises(StopError, match=f"group g, partition 0: offset .* is no receipt of table a: {why}"):
        State({0: 0}, {0: 9}, {}).span(**changed)
