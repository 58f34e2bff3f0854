"""The schemas of events for other languages accept what the gateway accepts, and nothing else."""

import json
import re
from typing import Any

import cbor2
import jsonschema  # type: ignore[import-untyped] # it carries no types
import pycddl  # type: ignore[import-untyped] # it carries no types
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.decode.decoded import EVENTS_MAX
from agent.decode.delivery_body import decode
from agent.decode.event_map import FIELDS
from agent.delivery import Delivery, Media
from contract.event import TIME_MAX
from tests.docs.pages import ROOT
from tests.docs.test_readme import EXAMPLES

FOLDER = ROOT / "docs" / "schemas"
SCHEMA = json.loads((FOLDER / "event.schema.json").read_text())
JSON_SCHEMA = jsonschema.Draft202012Validator(SCHEMA)
# An expression of CDDL matches the whole text (RFC 8610 section 3.8.3); this validator searches it in the text.
CDDL_TEXT = (FOLDER / "event.cddl").read_text()
CDDL = pycddl.Schema(re.sub(r'\.regexp "(.*?)"', r'.regexp "^\1$"', CDDL_TEXT))

TEXT = st.text("aé{$\n\x7f\x9f -0:", max_size=4) | st.sampled_from(["x" * 64, "x" * 65, "x" * 256, "x" * 257])
NAMES = st.sampled_from(["urn:dev:mac:1", "urn:Oncegate:x", "gateway.x", "urn:oncegate"])
INTEGERS = st.integers(-(2**65), 2**65) | st.sampled_from([2**64 - 1, 2**64, -(2**63), -(2**63) - 1, TIME_MAX + 1])
FLOATS = st.floats(allow_nan=False, allow_infinity=False).filter(lambda number: number != -(2.0**63))
BASE64 = st.sampled_from(["", "AQ", "AQID", "AQ==", "AQI=", "A", "A=", "AQ=", "+/+/", "AQ\n", "===="])
IDENTIFIERS = st.none() | st.integers(-(2**64), 2**64 - 1) | TEXT | st.booleans() | st.binary(max_size=2)
SCALARS = st.none() | st.booleans() | INTEGERS | FLOATS | TEXT


def values(leaves: st.SearchStrategy[Any], keys: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=8
    )


JSON_VALUES = values(SCALARS | st.builds(lambda digits: {"$bytes": digits}, BASE64), TEXT | st.just("$bytes"))
CBOR_VALUES = SCALARS | st.binary(max_size=3) | st.lists(SCALARS, max_size=2)


def identity(identifier: st.SearchStrategy[Any], name: st.SearchStrategy[Any]) -> dict[str, st.SearchStrategy[Any]]:
    """Return the fields of the identity without `data`; each is mostly of its own kind."""
    time = st.integers(-(2**40), 2**50) | identifier
    return {"device": name, "type": name, "id": identifier, "boot": identifier, "time": time}


def bodies(value: st.SearchStrategy[Any], identifier: st.SearchStrategy[Any], name: st.SearchStrategy[Any]) -> Any:
    """Return maps, some of which are events."""
    data = st.dictionaries(TEXT, value, max_size=3) | value
    units = st.dictionaries(TEXT, st.none() | TEXT, max_size=2) | value
    return st.fixed_dictionaries({}, optional={**identity(identifier, name), "data": data, "units": units})


def is_accepted(body: bytes, media: Media) -> bool:
    """Whether the gateway takes every event of a body."""
    decoded = decode(Delivery(body, media, "coap", "coap://[::1]"))
    return bool(decoded.events) and not decoded.rejected


def fits_cddl(body: bytes) -> bool:
    try:
        CDDL.validate_cbor(body)
    except pycddl.ValidationError:
        return False
    return True


@given(bodies(JSON_VALUES, SCALARS, NAMES | TEXT | SCALARS), st.booleans())
@settings(max_examples=200, deadline=None)
def test_the_json_schema_accepts_what_the_gateway_accepts(body: dict[str, Any], unknown: bool) -> None:
    body |= {"other": 1} if unknown else {}
    assert JSON_SCHEMA.is_valid(body) == is_accepted(json.dumps(body).encode(), Media.JSON)


# This validator takes a list for a map, refuses maps within `data`, and does not check that a map has no other keys.
@given(bodies(CBOR_VALUES, IDENTIFIERS, TEXT | st.none()))
@settings(max_examples=150, deadline=None)
def test_what_the_gateway_accepts_fits_the_cddl(body: dict[str, Any]) -> None:
    encoded = cbor2.dumps(body)
    assert fits_cddl(encoded) or not is_accepted(encoded, Media.CBOR)


@given(st.fixed_dictionaries({}, optional=identity(IDENTIFIERS, TEXT | st.none() | st.booleans())))
@settings(max_examples=150, deadline=None)
def test_the_gateway_accepts_the_identity_that_fits_the_cddl(body: dict[str, Any]) -> None:
    encoded = cbor2.dumps(body)
    assert fits_cddl(encoded) == is_accepted(encoded, Media.CBOR)


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, text, _ in EXAMPLES if kind in ("json", "cbor")])
def test_the_examples_of_the_page_fit_their_schema(kind: str, text: str) -> None:
    if kind == "json":
        JSON_SCHEMA.validate(json.loads(text))
    else:
        CDDL.validate_cbor(bytes.fromhex(text))


def test_an_array_has_at_most_as_many_events_as_the_gateway_takes() -> None:
    for count, fits in ((1, True), (EVENTS_MAX, True), (EVENTS_MAX + 1, False), (0, False)):
        assert JSON_SCHEMA.is_valid([{"id": number} for number in range(count)]) == fits
    assert f"[1*{EVENTS_MAX} event]" in CDDL_TEXT


def test_the_fields_of_both_are_those_of_the_gateway() -> None:
    assert set(SCHEMA["$defs"]["event"]["properties"]) == FIELDS
    assert set(re.findall(r'^  \? "(\w+)" =>', CDDL_TEXT, re.MULTILINE)) == FIELDS
