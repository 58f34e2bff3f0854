import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.receipt import Receipt, parse

tables = st.text(st.characters(codec="ascii", exclude_characters=":"), min_size=1)


@given(tables, st.integers(0, (1 << 63) - 1), st.none() | tables)
def test_a_receipt_is_read_as_it_was_written(table: str, first: int, succeeds: str | None) -> None:
    receipt = Receipt(table, first, succeeds)
    assert parse(str(receipt)) == receipt


def test_a_receipt_looks_as_documented() -> None:
    assert str(Receipt("t1", 7)) == "oncegate:t1:00000000000000000007"
    assert str(Receipt("t2", 9, "t1")) == "oncegate:t2:00000000000000000009:t1"


def test_a_first_offset_without_leading_zeros_is_read_too() -> None:
    assert parse("oncegate:t1:7") == Receipt("t1", 7)
    assert parse("oncegate:t2:9:t1") == Receipt("t2", 9, "t1")


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        "",
        "oncegate",
        "oncegate:t1",
        "oncegate::7",
        "oncegate:t1:",
        "oncegate:t1:x",
        "oncegate:t1:-1",
        "oncegate:t1:\u0663",
        "other:t1:7",
        "oncegate:t1:7:t0:more",
    ],
)
def test_what_is_not_ours_is_no_receipt(metadata: str | None) -> None:
    assert parse(metadata) is None


@given(st.text())
def test_any_text_is_read_without_an_error(metadata: str) -> None:
    parse(metadata)
