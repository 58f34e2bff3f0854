"""Records of any content: each is a row that PostgreSQL takes, or has a reason for the quarantine."""

from __future__ import annotations

from typing import cast

import pytest
from confluent_kafka import Message

from cloud.plain_consumer.values import read_message

_FINGERPRINT = b"0123456789abcdef" * 2
_DEPTH = 200_000
"""More levels than Python's stack allows."""


class Received:
    """A message of Kafka's client with a value."""

    def __init__(self, entries: bytes) -> None:
        self._value = b'{"fingerprint":"' + _FINGERPRINT + b'","device":"d","type":"t",' + entries + b"}"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 1

    def value(self) -> bytes:
        return self._value

    def headers(self) -> list[tuple[str, bytes]]:
        return [("ce_id", _FINGERPRINT)]


@pytest.mark.parametrize(
    "entries",
    [
        b'"time":1e999',
        b'"time":9223372036854775808',
        b'"time":null',
        b'"data":' + b"[" * _DEPTH + b"]" * _DEPTH,
        b'"data":\xff',
        b'"data":NaN',
        b'"data":{"a":1e999}',
    ],
)
def test_a_value_that_no_row_can_have_has_a_reason(entries: bytes) -> None:
    assert read_message(cast("Message", Received(entries))).reason is not None


def test_a_text_that_is_no_unicode_is_replaced_in_data_as_elsewhere() -> None:
    entry = read_message(cast("Message", Received(rb'"id":"\ud800","data":{"a":"\ud800","b":"\\\u0000\\u0000"}')))
    assert (entry.reason, entry.id, entry.data) == (None, "?", '{"a":"?","b":"\\\\\ufffd\\\\u0000"}')


def test_what_a_later_gateway_adds_is_named_and_refuses_nothing() -> None:
    entry = read_message(cast("Message", Received(b'"ext":{"linkquality":120,"later":[1]},"later":{"data":1}')))
    assert (entry.reason, entry.ext, entry.unknown) == (None, '{"linkquality":120,"later":[1]}', ("later",))
