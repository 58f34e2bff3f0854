"""The gateway's own sequence numbers: none twice, whatever becomes of the process, the file, or the card."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.coap.sender_numbers import BLOCK, LEAP_MAX, NUMBER_END, NumbersExhaustedError, SenderNumbers


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1 << 32), lives=st.lists(st.integers(0, 3 * BLOCK), min_size=1, max_size=6))
def test_no_number_comes_twice_over_lives_that_end_without_warning(
    tmp_path_factory: pytest.TempPathFactory, seed: int, lives: list[int]
) -> None:
    file = tmp_path_factory.mktemp("numbers") / "oscore" / "a.number"
    random = Random(seed)
    taken: list[int] = []
    for count in lives:
        numbers = SenderNumbers(file, random)
        taken += [numbers.take() for _ in range(count)]
    assert len(set(taken)) == len(taken)
    assert taken == sorted(taken)


def test_a_block_is_on_disk_before_its_first_number_is_given(tmp_path: Path) -> None:
    file = tmp_path / "a.number"
    numbers = SenderNumbers(file, Random(1))
    for _ in range(2 * BLOCK + 1):
        assert numbers.take() < int(file.read_text())


def test_what_cannot_be_reserved_is_not_given(tmp_path: Path) -> None:
    folder = tmp_path / "oscore"
    folder.write_text("a file stands in the way")
    with pytest.raises(OSError, match="oscore"):
        SenderNumbers(folder / "a.number", Random(1)).take()


def test_two_lives_of_one_backup_go_different_ways(tmp_path: Path) -> None:
    file = tmp_path / "a.number"
    file.write_text("1000")
    one = SenderNumbers(file, Random(1)).take()
    file.write_text("1000")
    other = SenderNumbers(file, Random(2)).take()
    assert one != other
    assert 1000 <= min(one, other) <= max(one, other) < 1000 + LEAP_MAX


@pytest.mark.parametrize("content", [None, "", "damaged"])
def test_without_a_file_it_begins_anywhere(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "a.number"
    if content is not None:
        file.write_text(content)
    assert SenderNumbers(file, Random(3)).take() > LEAP_MAX


def test_at_the_end_no_number_is_given(tmp_path: Path) -> None:
    file = tmp_path / "a.number"
    file.write_text(str(NUMBER_END))
    with pytest.raises(NumbersExhaustedError):
        SenderNumbers(file, Random(1)).take()
