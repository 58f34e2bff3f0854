"""Reading the metadata of a committed offset, with what the client reads beyond its end."""

import pytest
from confluent_kafka import TopicPartition

from agent.forward.group import read_metadata

TABLE = "a199db6a-28c3-4828-8c77-370382fddc32"


@pytest.mark.parametrize(
    ("metadata", "read"),
    [
        (f"oncegate:{TABLE}:0", f"oncegate:{TABLE}:0"),
        (f"oncegate:{TABLE}:17", f"oncegate:{TABLE}:17"),
        (f"oncegate:{TABLE}:0\x01", f"oncegate:{TABLE}:0"),
        (f"oncegate:{TABLE}:07", f"oncegate:{TABLE}:0"),
        (f"oncegate:{TABLE}:17é", f"oncegate:{TABLE}:17"),
        (f"oncegate:{TABLE}:17:{TABLE}", f"oncegate:{TABLE}:17:{TABLE}"),
        (f"oncegate:{TABLE}:17:{TABLE}\x02", f"oncegate:{TABLE}:17:{TABLE}"),
        ("a consumer's own words", None),
        ("", None),
    ],
)
def test_what_stands_beyond_the_end_is_not_taken_for_a_receipt(metadata: str, read: str | None) -> None:
    assert read_metadata(TopicPartition("topic", 0, 1, metadata)) == read


class Overread:
    """What the client gives where the bytes beyond the end are no UTF-8."""

    @property
    def metadata(self) -> str:
        return f"oncegate:{TABLE}:0".encode().__add__(b"\xff").decode()


def test_bytes_that_are_no_text_are_cut_off() -> None:
    assert read_metadata(Overread()) == f"oncegate:{TABLE}:0"
