import pytest

from agent.decode import json
from agent.decode.decoded import Undecodable
from agent.delivery import Media
from contract.values import DEPTH_MAX, Invalid
from tests.agent.decode.deliveries import deliver, only, reason_of


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("18446744073709551615", (1 << 64) - 1),
        ("-9223372036854775808", -(1 << 63)),
        ("18446744073709551616", float(1 << 64)),
        ("-9223372036854775809", float(-(1 << 63))),
        ("1" + "0" * 300, 1e300),
        ("2.0", 2.0),
        ("-0", 0),
        ("1e-999", 0.0),
        ('"\\ud83d\\ude00"', "\U0001f600"),
        ('{"$bytes": "AP8Q"}', b"\0\xff\x10"),
        ('{"$bytes": "AA=="}', b"\0"),
        ("null", None),
    ],
)
def test_literal_is_read(literal: str, value: object) -> None:
    data = only(deliver(f'{{"id": 1, "data": {{"x": {literal}}}}}'.encode())).data
    assert data == {"x": value}
    assert data is not None
    assert type(data["x"]) is type(value)


@pytest.mark.parametrize(
    ("literal", "reason"),
    [
        ("NaN", "NaN"),
        ("Infinity", "Infinity"),
        ("-Infinity", "-Infinity"),
        ("1e999", "not finite"),
        ("-1e999", "not finite"),
        ("9" * 400, "not finite"),
        ("9" * 10_000, "not finite"),
        ('"\\ud800"', "surrogate"),
        ('{"\\udc00": 1}', "surrogate"),
        ('{"a": 1, "a": 1}', "twice"),
        ('{"a": 1, "\\u0061": 1}', "twice"),
        ('{"\\u00e9": 1, "e\\u0301": 1}', "equal after NFC"),
        ('{"$bytes": "A"}', r"$bytes is not base64url"),
        ('{"$bytes": 1}', r"$bytes is not text"),
        ('{"$bytes": "AA", "more": 1}', r"$bytes"),
        ("[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1), "nested deeper"),
    ],
)
def test_wrong_value_rejects_its_event_only(literal: str, reason: str) -> None:
    wrong = f'{{"id": 2, "data": {{"x": {literal}}}}}'
    decoded = deliver(f' [{{"id": 1}} ,{wrong}\n, {{"id": 3}}]\n'.encode())
    assert [event.id for event in decoded.events] == [1, 3]
    [rejected] = decoded.rejected
    assert reason in rejected.reason
    assert rejected.raw == wrong.encode()[:4096]


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[",
        b"[{}",
        b"[{},]",
        b'{"id": 1,}',
        b"{} {}",
        b"{}x",
        b"nul",
        b"'a'",
        b"\xff{}",
        b'{"a": "\xed\xa0\x80"}',
        b"\xef\xbb\xbf{}",
        b'{"id": 01}',
        b'{"id": +1}',
        b'{"a": "\n"}',
        b"[" * 50_000,
    ],
    ids=lambda body: repr(body[:20]),
)
def test_what_is_no_json_is_undecodable(body: bytes) -> None:
    with pytest.raises(Undecodable, match="JSON"):
        deliver(body)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 50_000 + b"]" * 50_000,
        b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        b"[" * (json.NESTING_MAX + 1),
        b"[" * (json.NESTING_MAX + 1) + b"]" * (json.NESTING_MAX + 1),
        b'[{"]":' + b'["]\\"]",' * json.NESTING_MAX + b"1",
    ],
    ids=lambda body: repr(body[:20]),
)
def test_what_is_nested_too_deeply_is_undecodable(body: bytes) -> None:
    with pytest.raises(Undecodable, match=f"nested deeper than {json.NESTING_MAX} levels"):
        deliver(body)


def nested(levels: int) -> bytes:
    """Return an event whose data has so many levels, beside one that is valid."""
    return b'[{"id": 1}, {"data": ' + b"[" * levels + b"]" * levels + b"}]"


def test_how_much_stack_is_left_does_not_decide_what_is_nested_too_deeply() -> None:
    def check(frames: int) -> None:
        if frames:
            check(frames - 1)
            return
        assert len(deliver(nested(json.NESTING_MAX - 2)).events) == 1
        with pytest.raises(Undecodable, match="nested deeper"):
            deliver(nested(json.NESTING_MAX - 1))

    for frames in (0, 50, 200):
        check(frames)


def test_brackets_one_beside_the_other_or_in_text_are_no_levels() -> None:
    many = json.NESTING_MAX + 1
    with pytest.raises(Undecodable, match="neither a map nor an array"):
        deliver(b'"' + b"[" * many + b'"')
    assert len(deliver(b'{"data": {"a": "' + b'[{\\"' * many + b'", "b": [' + b"[]," * many + b"1]}}").events) == 1


@pytest.mark.parametrize("body", [b"1", b'"text"', b"null", b"true", b"1.5", b'{"$bytes": "AA"}'])
def test_other_documents_are_undecodable(body: bytes) -> None:
    with pytest.raises(Undecodable, match="neither a map nor an array"):
        deliver(body)


@pytest.mark.parametrize("text", ['[{"a": 1}]', ' [ {"a": 1} , [] ,\t"x]" ]', "[]", '[1,"é"]'])
def test_split_cuts_where_the_items_are(text: str) -> None:
    items = json.read(text.encode())
    assert [json.read(piece) for piece in json.split(text.encode())] == items


def test_constant_outside_an_event_is_a_rejected_event() -> None:
    assert json.read(b"NaN") == Invalid("NaN is not a number in JSON")
    assert "NaN" in reason_of(deliver(b"NaN", Media.JSON))


def test_the_place_of_a_control_character_is_named() -> None:
    with pytest.raises(Undecodable, match=r"JSON: Invalid control character at character 6$"):
        json.read(b'{"a":"\n"}')
