import pytest

from agent.decode.decoded import Undecodable
from contract.event import Event
from tests.agent.decode.deliveries import SENDER, deliver_json, deliver_senml, only, reason_of


def test_words_fill_what_the_body_lacks() -> None:
    words = {"d": "urn:dev:ops:1", "id": "17", "boot": "b2", "t": "1700000000123", "type": "alarm"}
    event = only(deliver_json({"data": {"x": 1}}, words))
    assert event == Event("urn:dev:ops:1", "alarm", 17, "b2", 1_700_000_000_123, {"x": 1})


@pytest.mark.parametrize(
    ("word", "id_"),
    [
        ("0", 0),
        ("17", 17),
        ("007", "007"),
        ("00", "00"),
        ("-5", "-5"),
        ("1.0", "1.0"),
        ("+1", "+1"),
        ("\u0661", "\u0661"),
        ("1 ", "1 "),
        ("18446744073709551615", (1 << 64) - 1),
        ("e\u0301", "é"),
    ],
)
def test_decimal_digits_without_a_leading_zero_are_an_integer(word: str, id_: int | str) -> None:
    assert only(deliver_json({}, {"id": word})).id == id_


@pytest.mark.parametrize(
    ("field", "word", "same", "other"),
    [
        ("device", "d", {"a": "a"}, {"a": "b"}),
        ("id", "id", {17.0: "17", "007": "007"}, {17: "18", "17": "17"}),
        ("boot", "boot", {1: "1"}, {1: "2"}),
        ("time", "t", {5: "5"}, {5: "6"}),
        ("type", "type", {"alarm": "alarm", None: "alarm"}, {"reading": "alarm"}),
    ],
)
def test_body_and_query_may_say_the_same_and_a_clash_between_them_is_a_rejected_event(
    field: str, word: str, same: dict[object, str], other: dict[object, str]
) -> None:
    for value, said in same.items():
        assert only(deliver_json({field: value}, {word: said})) == only(deliver_json({}, {word: said}))
    for value, said in other.items():
        assert "differs between body and query" in reason_of(deliver_json({field: value}, {word: said}))


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"t": "yesterday"}, "time is not"),
        ({"t": "007"}, "time is not"),
        ({"t": "9" * 20}, "time is outside"),
        ({"id": "18446744073709551616"}, "id is outside"),
        ({"d": "urn:oncegate:gateway:1"}, "gateways themselves"),
        ({"type": "gateway.started"}, "gateway's own"),
        ({"type": "x" * 65}, "type is empty or longer"),
        ({"d": "a\n"}, "control character"),
    ],
)
def test_a_wrong_word_is_a_rejected_event(words: dict[str, str], reason: str) -> None:
    assert reason in reason_of(deliver_json({}, words))


@pytest.mark.parametrize("words", [{"i": "7"}, {"id": ""}, {"d": "x" * 257}, {"device": "a"}])
def test_a_misspelt_or_endless_word_is_undecodable(words: dict[str, str]) -> None:
    with pytest.raises(Undecodable, match="query"):
        deliver_json({}, words)


@pytest.mark.parametrize("words", [{"id": "1"}, {"boot": "1"}, {"t": "1"}])
def test_words_for_one_event_are_refused_on_a_pack_of_several(words: dict[str, str]) -> None:
    with pytest.raises(Undecodable, match="holds several"):
        deliver_json([{}, {}], words)
    with pytest.raises(Undecodable, match="holds several"):
        deliver_senml([{"bn": "a", "v": 1, "t": 1e9}, {"v": 1, "t": 1e9 + 1}], words)
    assert len(deliver_json([{}], words).events) == 1


def test_device_and_type_hold_for_a_whole_pack() -> None:
    decoded = deliver_json([{"id": 1}, {"id": 2}], {"d": "a", "type": "alarm"})
    assert {(event.device, event.type) for event in decoded.events} == {("a", "alarm")}


def test_the_querys_device_goes_before_the_transports() -> None:
    assert only(deliver_json({}, {"d": "a"}, authenticated="proven")).device == "a"
    assert only(deliver_json({}, {"type": "x"}, authenticated="proven")).device == "proven"
    assert only(deliver_json({}, {"type": "x"})).device == SENDER
