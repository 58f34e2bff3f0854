import struct
import unicodedata
from collections.abc import Mapping
from io import BytesIO

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract import cbor
from contract.event import Value
from tests.contract.strategies import finite, integers, maps, values


@given(maps(values))
def test_cbor2_reads_back_what_we_encode(entries: dict[str, Value]) -> None:
    stream = BytesIO(encoded := cbor.encode(entries))
    assert cbor2.CBORDecoder(stream).decode() == _reduced(entries)
    assert stream.tell() == len(encoded)


@given(maps(values, max_size=40))
def test_keys_are_sorted_by_their_bytes(entries: dict[str, Value]) -> None:
    present = [key for key, value in entries.items() if value is not None]
    in_order = list(cbor2.loads(cbor.encode(entries)))
    assert in_order == sorted((unicodedata.normalize("NFC", key) for key in present), key=cbor.encode_text)


@given(integers)
def test_integers_are_as_short_as_cbor2_makes_them(number: int) -> None:
    assert cbor.encode(number) == cbor2.dumps(number)


@given(integers.map(float).filter(lambda number: number < 2**64) | st.integers(-(2**53), 2**53).map(float))
def test_integral_floats_are_integers(number: float) -> None:
    assert cbor.encode(number) == cbor.encode(int(number))


@given(finite.filter(lambda number: not number.is_integer()) | st.floats(min_value=2**64, allow_infinity=False))
def test_other_floats_take_the_shortest_form_that_keeps_them(number: float) -> None:
    encoded = cbor.encode(number)
    assert cbor2.loads(encoded) == number
    for code in ("e", "f", "d"):
        try:
            if struct.unpack(f">{code}", packed := struct.pack(f">{code}", number))[0] == number:
                break
        except OverflowError:
            continue
    assert encoded[1:] == packed


@given(st.text())
def test_text_is_in_nfc(text: str) -> None:
    assert cbor.encode(text) == cbor2.dumps(unicodedata.normalize("NFC", text))


def test_null_is_left_out_of_maps_at_every_depth_and_stays_in_lists() -> None:
    assert cbor.encode({"a": None, "b": {"c": None}, "d": [None, {"e": None}]}) == cbor.encode(
        {"b": {}, "d": [None, {}]}
    )


@pytest.mark.parametrize(
    ("value", "reason"),
    [
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
def test_what_has_no_encoding_is_a_value_error(value: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        cbor.encode([value])


@pytest.mark.parametrize("value", [object(), {1, 2}, 1j])
def test_what_has_no_type_is_a_type_error(value: object) -> None:
    with pytest.raises(TypeError, match="no place"):
        cbor.encode([value])


def _reduced(value: object) -> object:
    """Return a value as it is after encoding and decoding."""
    if isinstance(value, Mapping):
        return {unicodedata.normalize("NFC", key): _reduced(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_reduced(item) for item in value]
    return unicodedata.normalize("NFC", value) if isinstance(value, str) else value
