import time
import unicodedata
from collections.abc import Mapping
from datetime import datetime

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract import cbor
from contract.event import TIME_MAX, TIME_MIN, Value
from contract.values import DEPTH_MAX, VALUES_MAX, Invalid, InvalidValue, check_data, decode_base64url
from tests.contract.strategies import finite, integers, maps, values


def nested(levels: int, inner: Value = 1) -> dict[str, Value]:
    """Return data whose innermost list is at this level, the data itself being the first."""
    for _ in range(levels - 1):
        inner = [inner]
    return {"x": inner}


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


@pytest.mark.parametrize(
    ("text", "raw"), [("", b""), ("AP8Q", b"\0\xff\x10"), ("_-8", b"\xff\xef"), ("AA==", b"\0"), ("AA", b"\0")]
)
def test_base64url_is_read_with_and_without_padding(text: str, raw: bytes) -> None:
    assert decode_base64url(text) == raw


@pytest.mark.parametrize("text", ["+/8", "A", "AA AA", "AA\n", "=", "AAAAA", "é", "AA===", "A=A=", "AAAA==", "AA="])
def test_other_text_is_not_base64url(text: str) -> None:
    with pytest.raises(InvalidValue, match="base64url"):
        decode_base64url(text)


def encoded(value: object) -> bytes:
    parts: list[bytes] = []
    cbor.encode_into(parts, value)
    return b"".join(parts)


@given(maps(values, max_size=40) | finite | st.floats(1 << 64, 1 << 70) | integers | integers.map(float) | st.text())
def test_the_encoding_is_the_canonical_one_of_the_reduced_value(value: Value) -> None:
    assert encoded(value) == cbor2.dumps(_reduced(value), canonical=True)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        *((value, "has no place") for value in (object(), {1, 2}, 1j)),
        (float("nan"), "not a number that can be kept"),
        (float("inf"), "not a number that can be kept"),
        (-float("inf"), "not a number that can be kept"),
        (1 << 64, "above"),
        (-(1 << 63) - 1, "below"),
        ("\ud800", "surrogates"),
        ({"\udfff": 1}, "surrogates"),
        ({"é": 1, "e\u0301": 2}, "equal after NFC"),
        ({"e\u0301" * 50: 1, "é" * 50: 2}, "equal after NFC"),
    ],
)
def test_what_has_no_encoding_is_an_error(value: object, reason: str) -> None:
    with pytest.raises(TypeError if "place" in reason else ValueError, match=reason):
        encoded([value])


def _reduced(value: object) -> object:
    """Return a value without nulls in maps, with text in NFC, and with integral floats as integers."""
    if isinstance(value, Mapping):
        return {unicodedata.normalize("NFC", key): _reduced(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_reduced(item) for item in value]
    if isinstance(value, float) and value.is_integer() and cbor.INTEGER_MIN <= value < cbor.INTEGER_END:
        return int(value)
    return unicodedata.normalize("NFC", value) if isinstance(value, str) else value


@pytest.mark.parametrize("zone", ["UTC", "Etc/GMT+12", "Etc/GMT-14"])
def test_python_has_each_time_of_an_event_in_each_time_zone(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers such as Spark's `collect` make local times of it."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert [datetime.fromtimestamp(moment // 1000).year for moment in (TIME_MIN, TIME_MAX)] == [1, 9999]  # noqa: DTZ006
    finally:
        monkeypatch.undo()
        time.tzset()
