import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.receipt import TOPIC_ID_CHARACTERS, Receipt, parse

TOPIC = "nDCRGbaQT4C6Yy0VbBGzCg"
NAME = st.text("0123456789abcdefABCDEF-", min_size=1)
TOPICS = st.text("0123456789abcXYZ_-", min_size=TOPIC_ID_CHARACTERS, max_size=TOPIC_ID_CHARACTERS)


FAILING = st.none() | st.integers(0, 10**13 - 1)


@given(NAME, st.integers(0, (1 << 63) - 1), TOPICS, st.none() | NAME, FAILING)
def test_a_receipt_is_read_as_it_was_written(
    table: str, first: int, topic_id: str, succeeds: str | None, failing_since: int | None
) -> None:
    receipt = Receipt(table, first, topic_id, succeeds, failing_since)
    assert parse(str(receipt)) == receipt


def test_a_receipt_looks_as_documented() -> None:
    assert str(Receipt("t1", 7, TOPIC)) == f"oncegate:t1::00000000000000000007:{TOPIC}"
    assert str(Receipt("t2", 9, TOPIC, "t1")) == f"oncegate:t2:t1:00000000000000000009:{TOPIC}"
    noted = Receipt("t1", 7, TOPIC, failing_since=1795848655738)
    assert str(noted) == f"{Receipt('t1', 7, TOPIC)}:effects-failing-since=1795848655738"


@pytest.mark.guarantee(4)
@given(TOPICS, st.none() | NAME, st.text(max_size=40) | NAME | NAME.map(":{}".format))
def test_what_stands_beyond_a_receipt_changes_nothing(topic_id: str, succeeds: str | None, beyond: str) -> None:
    receipt = Receipt("t1", 7, topic_id, succeeds)
    assert parse(f"{receipt}{beyond}") == receipt


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        "",
        "oncegate",
        "oncegate:t1",
        "oncegate:t1:",
        f"oncegate:t1:00000000000000000007:{TOPIC}",
        f"oncegate:t1::00000000000000000007:{TOPIC[1:]}",
        "oncegate:t1::00000000000000000007",
        f"oncegate:t1::7:{TOPIC}",
        f"oncegate:::00000000000000000007:{TOPIC}",
        f"oncegate:t1::0000000000000000000\u0663:{TOPIC}",
        f"other:t1:00000000000000000007:{TOPIC}",
        f"oncegate:t1,t2::00000000000000000007:{TOPIC}",
        f"oncegate:t1\n::00000000000000000007:{TOPIC}",
        f"oncegate:t_1::00000000000000000007:{TOPIC}",
        f"oncegate:t1:t2,,t3:00000000000000000007:{TOPIC}",
        f"oncegate:t1:t 2:00000000000000000007:{TOPIC}",
    ],
)
def test_what_is_not_ours_is_no_receipt(metadata: str | None) -> None:
    assert parse(metadata) is None


@pytest.mark.parametrize(
    ("table", "succeeds"), [("t1,t2", None), ("t1\n", None), ("", None), ("t1", "t2,"), ("t1", "ä")]
)
def test_what_breaks_the_form_is_not_written(table: str, succeeds: str | None) -> None:
    with pytest.raises(ValueError, match="expected letters of ASCII, digits and hyphens"):
        Receipt(table, 7, TOPIC, succeeds)


@given(st.text() | st.builds("{}{}".format, st.builds(Receipt, NAME, st.integers(0), TOPICS), st.text()))
def test_any_text_begins_with_what_is_read_of_it(metadata: str) -> None:
    found = parse(metadata)
    assert found is None or metadata.startswith(str(found))
