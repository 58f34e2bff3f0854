import json

import cbor2
import pytest
from hypothesis import given

from contract import cbor
from contract.event import Value
from contract.record import json_text
from contract.values import DEPTH_MAX, VALUES_MAX, Invalid, InvalidValue, check_data, decode_base64url
from tests.contract.strategies import maps, values


def nested(levels: int, inner: Value = 1) -> dict[str, Value]:
    """Return data whose innermost list is at this level, the data itself being the first."""
    for _ in range(levels - 1):
        inner = [inner]
    return {"x": inner}


@given(maps(values))
def test_what_is_checked_can_be_encoded_by_every_later_step(data: dict[str, Value]) -> None:
    check_data(data)
    encoded = cbor.encode(data)
    assert cbor.encode(cbor2.loads(encoded)) == encoded
    assert json.loads(json_text(data)).keys() >= {key for key, value in data.items() if value is not None}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ([1], "not a map"),
        ({"x": float("nan")}, "not finite"),
        ({"x": [float("inf")]}, "not finite"),
        ({"x": 1 << 64}, "outside"),
        ({"x": -(1 << 63) - 1}, "outside"),
        ({1: 1}, "a key is not text"),
        ({"x": {b"a": 1}}, "a key is not text"),
        ({"é": 1, "e\u0301": 2}, "equal after NFC"),
        ({"x": {"é": 1, "e\u0301": None}}, "equal after NFC"),
        ({"x": "\ud800"}, "surrogate"),
        ({"\ud800": 1}, "surrogate"),
        ({"$bytes": "AA"}, r"\$bytes"),
        ({"x": [{"$bytes": 1, "y": 2}]}, r"\$bytes"),
        ({"x": Invalid("twice")}, "twice"),
        ({"x": {1, 2}}, "set has no place"),
        (nested(DEPTH_MAX + 1), "nested deeper"),
        (nested(DEPTH_MAX, {"y": 1}), "nested deeper"),
        ({"x": [0] * VALUES_MAX}, "more than"),
        ({str(number): number for number in range(10_000)}, "more than"),
    ],
)
def test_a_wrong_value_is_refused_with_its_reason(data: object, reason: str) -> None:
    with pytest.raises(InvalidValue, match=reason):
        check_data(data)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"x": (1 << 64) - 1, "y": -(1 << 63), "z": 1e300, "n": None, "t": "é\U0001f600", "b": b"\xff", "": True},
        nested(DEPTH_MAX),
        {"x": [0] * (VALUES_MAX - 1)},
    ],
)
def test_the_last_value_within_each_bound_is_kept(data: dict[str, Value]) -> None:
    check_data(data)
    encoded = cbor.encode(data)
    assert cbor.encode(cbor2.loads(encoded)) == encoded


@pytest.mark.parametrize(
    ("text", "raw"), [("", b""), ("AP8Q", b"\0\xff\x10"), ("_-8", b"\xff\xef"), ("AA==", b"\0"), ("AA", b"\0")]
)
def test_base64url_is_read_with_and_without_padding(text: str, raw: bytes) -> None:
    assert decode_base64url(text) == raw


@pytest.mark.parametrize("text", ["+/8", "A", "AA AA", "AA\n", "=", "AAAAA", "é", "AA===", "A=A=", "AAAA==", "AA="])
def test_other_text_is_not_base64url(text: str) -> None:
    with pytest.raises(InvalidValue, match="base64url"):
        decode_base64url(text)
