"""The gateway's own sequence numbers: none is used twice, after any failure of the process, the file, or the card."""

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent.coap.oscore.sequence_numbers import (
    BLOCK,
    LEAP_SHARE,
    NUMBER_END,
    SHORT_END,
    SHORT_LEAP_SHARE,
    SHORT_LEAPS_END,
    START_MAX,
    NoNumberError,
    SenderNumbers,
    Sequence,
    _written,
)
from tests.support.flushes import recorded, refusing


class Shortest(Random):
    def randrange(self, *_: int) -> int:  # type: ignore[override]
        return 0


def sequence(file: Path, random: Random) -> Sequence:
    """Return the numbers of a context in a new process."""
    return Sequence(SenderNumbers(file, random))


def take(numbers: Sequence) -> int:
    """Take a number; reserve a block first where necessary."""
    numbers.reserve()
    return numbers.next_number()


def reserved(file: Path) -> int:
    return int(file.read_text().split()[0])


def kept(file: Path, number: int) -> None:
    """Write the file with this number, as an agent would have."""
    numbers = SenderNumbers(file, Shortest())
    numbers._first = number - BLOCK
    take(Sequence(numbers))
    assert reserved(file) == number


@pytest.mark.guarantee(2)
@settings(max_examples=30)
@given(seed=st.integers(0, 1 << 32), lives=st.lists(st.integers(0, 3 * BLOCK), min_size=1, max_size=6))
def test_no_number_comes_twice_over_lives_that_end_without_warning(
    tmp_path_factory: pytest.TempPathFactory, seed: int, lives: list[int]
) -> None:
    file = tmp_path_factory.mktemp("numbers") / "oscore" / "a.number"
    random = Random(seed)
    taken: list[int] = []
    for count in lives:
        numbers = sequence(file, random)
        taken += [take(numbers) for _ in range(count)]
    assert len(set(taken)) == len(taken)
    assert taken == sorted(taken)


def test_nothing_is_given_before_it_is_reserved(tmp_path: Path) -> None:
    numbers = sequence(tmp_path / "a.number", Random(1))
    with pytest.raises(NoNumberError, match="reserved"):
        numbers.next_number()
    numbers.reserve()
    for _ in range(BLOCK):
        numbers.next_number()
    with pytest.raises(NoNumberError):
        numbers.next_number()


@pytest.mark.guarantee(2)
def test_however_many_threads_reserve_there_is_one_block_and_no_number_comes_twice(tmp_path: Path) -> None:
    numbers = sequence(tmp_path / "oscore" / "a.number", Random(1))
    taken: list[int] = []
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            for reserving in [pool.submit(numbers.reserve) for _ in range(32)]:
                reserving.result(30)
            taken += [numbers.next_number() for _ in range(BLOCK)]
            assert not numbers.has_some
    assert taken == list(range(taken[0], taken[0] + 3 * BLOCK))


@pytest.mark.guarantee(2)
def test_a_power_cut_after_a_number_was_given_cannot_take_its_block_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The content before the name, the name before the number; also the name of a new folder."""
    calls = recorded(monkeypatch, "replace")
    numbers = sequence(tmp_path / "oscore" / "a.number", Random(1))
    block = ["fsync file", "replace", "fsync oscore"]
    take(numbers)
    assert calls == [f"fsync {tmp_path.name}", *block]
    for _ in range(BLOCK):
        take(numbers)
    assert calls == [f"fsync {tmp_path.name}", *block, *block]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_what_a_full_or_read_only_disk_refuses_is_not_given_and_comes_when_it_takes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    numbers = sequence(tmp_path / "a.number", Random(1))
    given = [take(numbers) for _ in range(BLOCK)]
    with monkeypatch.context() as patched:
        patched.setattr(os, failing, refusing(errno.ENOSPC))
        for _ in range(3):
            with pytest.raises(NoNumberError, match="No space left"):
                take(numbers)
    given += [take(numbers) for _ in range(BLOCK)]
    assert len(set(given)) == 2 * BLOCK


def test_two_lives_of_one_backup_go_different_ways(tmp_path: Path) -> None:
    file = tmp_path / "a.number"
    kept(file, 1_000_000)
    backup = file.read_bytes()
    one = take(sequence(file, Random(1)))
    file.write_bytes(backup)
    other = take(sequence(file, Random(2)))
    assert one != other
    assert 1_000_000 <= min(one, other) <= max(one, other) < 1_000_000 + SHORT_END // SHORT_LEAP_SHARE


def test_the_numbers_of_many_starts_take_four_bytes_and_those_of_more_are_never_used_up(tmp_path: Path) -> None:
    """Californium takes no Partial IV of five bytes."""
    file, random = tmp_path / "a.number", Random(1)
    kept(file, START_MAX)
    numbers = [take(sequence(file, random)) for _ in range(300)]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] < SHORT_END
    kept(file, SHORT_LEAPS_END)
    assert SHORT_LEAPS_END < take(sequence(file, random)) < SHORT_LEAPS_END + NUMBER_END // LEAP_SHARE


@given(st.lists(st.integers(0, 2), max_size=60), st.integers(0, 2))
def test_contexts_of_a_process_count_from_one_number_and_none_counts_beyond_what_is_on_disk(
    tmp_path_factory: pytest.TempPathFactory, takers: list[int], first: int
) -> None:
    file = tmp_path_factory.mktemp("numbers") / "a.number"
    numbers = SenderNumbers(file, Random(1))
    contexts = [Sequence(numbers) for _ in range(3)]
    taken: list[list[int]] = [[], [], []]
    for taker in (first, *takers):
        taken[taker].append(take(contexts[taker]))
        assert taken[taker][-1] < reserved(file)
    start = taken[first][0]
    assert taken == [list(range(start, start + len(of_context))) for of_context in taken]


SOUND = _written(123_456_789).encode()
FLIPPED = st.integers(0, 8 * len(SOUND) - 1).map(
    lambda bit: (int.from_bytes(SOUND, "little") ^ 1 << bit).to_bytes(len(SOUND), "little")
)


@settings(max_examples=300)
@given(st.binary(max_size=60) | st.integers().map(lambda number: str(number).encode()) | FLIPPED)
@example(b"")
@example(b"-1")
@example(b"9" * 5_000)
@example(b"1000")
@example(b"1000 00000000\n")
@example(str(NUMBER_END).encode())
@example("\u0661".encode())
def test_a_file_that_holds_something_else_counts_as_none(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    file = tmp_path_factory.mktemp("numbers") / "a.number"
    file.write_bytes(content)
    random = Random(3)
    assert take(sequence(file, random)) == Random(3).randrange(START_MAX)
    assert reserved(file) == Random(3).randrange(START_MAX) + BLOCK


def test_the_last_numbers_are_given_and_then_none(tmp_path: Path) -> None:
    file = tmp_path / "a.number"
    kept(file, NUMBER_END - BLOCK)
    numbers = sequence(file, Shortest())
    assert [take(numbers) for _ in range(BLOCK)] == list(range(NUMBER_END - BLOCK, NUMBER_END))
    for again in (numbers, sequence(file, Random(1))):
        with pytest.raises(NoNumberError, match="new credentials"):
            take(again)
    assert reserved(file) == NUMBER_END
