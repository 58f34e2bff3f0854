"""Messages as bytes: written messages are parsed back, by this project's parser and by aiocoap's."""

from __future__ import annotations

import pytest
from aiocoap import Message  # type: ignore[import-untyped] # aiocoap carries no types
from hypothesis import given
from hypothesis import strategies as st

from agent.coap.message import MessageFormatError, Option, join, read_options, split, uint, write_options

NUMBERS = st.integers(0, 65_000).filter(lambda number: number not in (3, 8, 11, 15, 20, 35, 39))  # those are text
OPTIONS = st.lists(st.builds(Option, NUMBERS, st.binary(max_size=600)), max_size=6).map(
    lambda options: tuple(sorted(options, key=lambda option: option.number))
)
HEADS = st.binary(min_size=3, max_size=11).map(lambda rest: bytes((0x40 | len(rest) - 3,)) + rest)


@given(OPTIONS)
def test_options_that_are_written_read_back(options: tuple[Option, ...]) -> None:
    assert read_options(write_options(options)) == options


@given(HEADS, OPTIONS, st.binary(max_size=50))
def test_aiocoap_reads_the_same(head: bytes, options: tuple[Option, ...], payload: bytes) -> None:
    read = Message.decode(join(head, write_options(options), payload))
    assert (read.token, read.payload) == (head[4:], payload)
    assert [option.number for option in read.opt.option_list()] == [option.number for option in options]


@given(HEADS, st.binary(max_size=40))
def test_any_bytes_are_a_message_or_an_error(head: bytes, rest: bytes) -> None:
    try:
        parts = split(head + rest)
    except MessageFormatError:
        return
    assert join(*parts) == head + rest
    assert sum(len(option.value) for option in read_options(parts[1])) <= len(parts[1])


@pytest.mark.parametrize(("value", "written"), [(0, b""), (255, b"\xff"), (256, b"\x01\x00")])
def test_an_unsigned_integer_has_no_leading_zero_byte(value: int, written: bytes) -> None:
    assert uint(value) == written
