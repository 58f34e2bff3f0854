"""Assertions about the final state of outbox and topic."""

from __future__ import annotations

from collections import Counter, defaultdict

from tests.agent.forward.broker import KafkaTopic, sequence
from tests.support.memory_outbox import MemoryOutbox
from tests.support.waiting import wait_for_count


def wait_until_forwarded(outbox: MemoryOutbox) -> None:
    wait_for_count(lambda: outbox.new, 0, "everything is forwarded")


def assert_nothing_lost(kafka: KafkaTopic, outbox: MemoryOutbox) -> None:
    """Assert that every event is in the topic, and that its batch has its real place."""
    places: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for record in kafka.records():
        partition, offset = record.partition(), record.offset()
        assert partition is not None
        assert offset is not None
        places[sequence(record)].add((partition, offset))
    covered = 0
    for batch in outbox.forwarded():
        for position in range(batch.first, batch.last + 1):
            covered += 1
            assert any(
                partition in batch.partitions
                and batch.partitions[partition].lowest <= offset <= batch.partitions[partition].highest
                for partition, offset in places[position]
            ), f"{position} is not where its batch says"
    assert covered == len(outbox.stored()) - len(outbox.given_up) == len(places)


def assert_each_once(kafka: KafkaTopic, outbox: MemoryOutbox) -> None:
    """Assert that every event is in the topic exactly once, for a reader of committed records."""
    seen = Counter(sequence(record) for record in kafka.records())
    stored = Counter(event.label.sequence for event in outbox.stored() if event.position not in outbox.given_up)
    lost, doubled = sorted((stored - seen).elements()), sorted((seen - stored).elements())
    assert not lost, f"lost {len(lost)}: {lost[:3]} to {lost[-3:]}"
    assert not doubled, f"doubled {len(doubled)}: {doubled[:3]} to {doubled[-3:]}"
