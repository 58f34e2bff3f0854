"""The metadata of a committed offset is parsed with the bytes that the client reads beyond its end."""

import threading
from dataclasses import replace
from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from agent.forward.kafka.client import LastError
from agent.forward.receipts.group_offsets import GroupOffsets, read_receipt
from contract.receipt import Receipt

TABLE = "a199db6a-28c3-4828-8c77-370382fddc32"


RECEIPT = Receipt(TABLE, 17, "nDCRGbaQT4C6Yy0VbBGzCg")
SUCCESSOR = replace(RECEIPT, succeeds=TABLE)


@pytest.mark.parametrize(
    ("metadata", "read"),
    [
        (str(RECEIPT), RECEIPT),
        (f"{RECEIPT}\x01", RECEIPT),
        (f"{RECEIPT}7", RECEIPT),
        (f"{RECEIPT}é", RECEIPT),
        (str(SUCCESSOR), SUCCESSOR),
        (f"{SUCCESSOR}\x02", SUCCESSOR),
        (f"{SUCCESSOR}7", SUCCESSOR),
        (f"{RECEIPT}:{TABLE}", RECEIPT),
        ("a consumer's own words", None),
        ("", None),
    ],
)
def test_what_stands_beyond_the_end_is_not_taken_for_a_receipt(metadata: str, read: Receipt | None) -> None:
    assert read_receipt(TopicPartition("topic", 0, 1, metadata)) == read


class Overread:
    """The client's value if the bytes beyond the end are not UTF-8."""

    @property
    def metadata(self) -> str:
        return str(RECEIPT).encode().__add__(b"\xff").decode()


def test_bytes_that_are_no_text_are_cut_off() -> None:
    assert read_receipt(Overread()) == RECEIPT


class Unsettled:
    """A client whose group's coordinator is not elected yet, as for the first group of a new cluster."""

    def __init__(self, *answers: int) -> None:
        self._answers = list(answers)

    def committed(self, question: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        if self._answers:
            raise KafkaException(KafkaError(self._answers.pop(0)))
        return [TopicPartition(one.topic, one.partition, 7) for one in question]


def read(consumer: Unsettled) -> dict[int, TopicPartition]:
    group = GroupOffsets(cast("AdminClient", None), cast("Consumer", consumer), "topic", LastError())
    return group._committed([0, 1], threading.Event())


def test_a_coordinator_that_is_being_elected_is_asked_again() -> None:
    waiting = (
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    )
    assert {number: answer.offset for number, answer in read(Unsettled(*waiting)).items()} == {0: 7, 1: 7}


def test_a_refusal_is_told_at_once() -> None:
    with pytest.raises(KafkaException, match="GROUP_AUTHORIZATION_FAILED"):
        read(Unsettled(KafkaError.GROUP_AUTHORIZATION_FAILED))
