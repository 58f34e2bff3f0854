"""The work for a body is bounded by its length; counted, not timed, are calls, sorted marks and written text."""

import json
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal
from unicodedata import combining, normalize

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.config.settings import IdentitySettings
from agent.decode.decoded import Undecodable
from agent.decode.delivery_body import decode
from agent.delivery import Delivery, ForeignFormat, Media
from agent.identity.identify import identify
from agent.mappings import catalog
from benchmarks.bodies import BODY_BYTES, slow_bodies
from contract.record import ClockTrust
from contract.values import MARKS_MAX, NFC_SHRINK_MAX, InvalidValue, check_text
from tests.support.calls import counted_calls

SHORT_BYTES, LONG_BYTES = 1 << 14, BODY_BYTES
BODIES = {size: slow_bodies(size) for size in (SHORT_BYTES, LONG_BYTES)}
CALLS_PER_BYTE = 16
CALLS_MAX = 1 << 18
"""Of Python or C, for a body of any length: 1,024 events of 256 calls each, or 16,384 items of 16."""
EXCHANGES_PER_BYTE = 128
"""Of two marks, as NFC sorts them: twice or three times over runs of up to 60."""
WRITTEN_PER_BYTE = 24
SETTINGS = IdentitySettings()


@dataclass(slots=True)
class Work:
    """The operations for one body."""

    calls: int = 0
    exchanges: int = 0
    written: int = 0


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    """Count the operations within; a text that NFC would sort for long is not passed to it."""
    work = Work()
    dumps = json.dumps

    def sort(form: Literal["NFC"], text: str) -> str:
        before = calls.count
        work.exchanges += exchanges(text)
        calls.count = before
        return text if work.exchanges > EXCHANGES_PER_BYTE * LONG_BYTES else normalize(form, text)

    def write(value: object, **how: object) -> str:
        text = dumps(value, **how)  # type: ignore[arg-type]  # as it was called
        work.written += len(text)
        return text

    with monkeypatch.context() as patch, counted_calls() as calls:
        patch.setattr(unicodedata, "normalize", sort)
        patch.setattr(json, "dumps", write)
        yield work
    work.calls = calls.count


def exchanges(text: str) -> int:
    """Count the maximum exchanges of neighbours in sorting a text's runs of combining marks."""
    marks = bytes(combining(mark) for sign in text for mark in normalize("NFD", sign))
    return sum(len(run) ** 2 for run in marks.split(b"\0"))


SIZES = [SHORT_BYTES, pytest.param(LONG_BYTES, marks=pytest.mark.heavy)]


@pytest.mark.guarantee(6)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("media", list(Media), ids=lambda media: media.name)
@pytest.mark.parametrize("name", BODIES[SHORT_BYTES])
def test_no_body_takes_more_work_than_its_length_allows(
    name: str, media: Media, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold_to_its_bounds(BODIES[size][name], media, monkeypatch)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("mapping", catalog.builtin())
def test_no_body_takes_a_mapping_more_work_than_its_length_allows(
    mapping: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    format_ = ForeignFormat(catalog.builtin()[mapping], ["a", "b", "c", "d"], {})
    for body in BODIES[size].values():
        hold_to_its_bounds(body, format_, monkeypatch)


def hold_to_its_bounds(body: bytes, media: Media | ForeignFormat, monkeypatch: pytest.MonkeyPatch) -> None:
    with counted(monkeypatch) as work:
        try:
            decoded = decode(Delivery(body, media, "coap", "coap://[fe80::1]"))
            for event in decoded.events:
                identify(event, "coap", 0, ClockTrust.TRUSTED, SETTINGS)
        except Undecodable:
            pass
    assert work.calls <= min(CALLS_PER_BYTE * (len(body) + SHORT_BYTES), CALLS_MAX)
    assert work.exchanges <= EXCHANGES_PER_BYTE * len(body)
    assert work.written <= WRITTEN_PER_BYTE * len(body)


marks = st.sampled_from(["\u0300", "\u0323", "\u0344", "\u0f73", "\u0f75", "\u0f81", "\u1e14", "a", "\u00e9", "\u1100"])


@pytest.mark.guarantee(6)
@given(st.lists(st.tuples(marks, st.integers(1, 40)), max_size=8))
@example([("\u0f73", 40)])
def test_text_that_passes_takes_no_long_sort(pieces: list[tuple[str, int]]) -> None:
    text = "".join(sign * count for sign, count in pieces)
    try:
        check_text(text)
    except InvalidValue:
        assert exchanges(text) > MARKS_MAX**2 // 4
    else:
        assert exchanges(text) <= (2 * MARKS_MAX + NFC_SHRINK_MAX) * 2 * max(len(text), 1)


def test_no_character_hides_marks_or_decomposes_into_more_than_is_known() -> None:
    for number in range(sys.maxunicode + 1):
        text = chr(number)
        decomposed = normalize("NFD", text)
        assert len(decomposed) <= NFC_SHRINK_MAX
        if combining(decomposed[0]):
            with pytest.raises(InvalidValue):
                check_text(text * (MARKS_MAX + 1))


def test_thirty_marks_in_a_row_are_text_and_more_are_refused_with_a_reason() -> None:
    check_text("a" + "\u0301" * MARKS_MAX)
    with pytest.raises(InvalidValue, match="more than 30 combining marks in a row"):
        check_text("a" + "\u0301" * (MARKS_MAX + 1))
