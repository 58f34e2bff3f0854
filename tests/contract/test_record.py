import dataclasses
import json
import re
import tracemalloc
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.decode.json import read
from agent.store.gateway_events import GatewayCondition, started
from contract.event import TIME_MAX, TIME_MIN, Event, Label, Value
from contract.fields import FIELDS, OBJECTS, exact_text
from contract.fingerprint import IDENTITY_FIELDS, fingerprint
from contract.record import (
    EXT_BYTES_MAX,
    HEADERS,
    SOURCE_BYTES_KEPT,
    SOURCES_KEPT,
    VALUE_PREFIX,
    VIA_START,
    ClockTrust,
    SharedDay,
    encode_record,
    encode_source,
    encode_tail,
    encode_value,
    json_text,
    read_data,
    read_header_fields,
    read_started,
    read_stated_label,
)
from contract.timestamp import rfc3339
from contract.values import DEPTH_MAX
from tests.contract.forms import entries_of
from tests.contract.strategies import events, maps, values

LABEL = Label("00c0ffee00c0ffee", 42)
RECEIVED = 1_763_706_000_123


def headers_of(event: Event, bound: int | None = None) -> list[tuple[str, bytes]]:
    name, tail = fingerprint(event, label=LABEL), encode_tail(event, RECEIVED, "coap")
    key, value, headers = encode_record(name, "gw-1", LABEL, tail, ClockTrust.UNTRUSTED, SharedDay.TIME, bound)
    assert (key, value) == (event.device.encode(), encode_value(name, "gw-1", LABEL, tail))
    return headers


def test_headers_are_as_documented() -> None:
    event = Event("urn:dev:mac:00158d0001a2b3c4", id=17, time=1_700_000_000_123, data={"temperature": 21.5})
    assert headers_of(event, bound=0) == [
        ("ce_specversion", b"1.0"),
        ("ce_type", b"oncegate.reading"),
        ("ce_source", b"urn:dev:mac:00158d0001a2b3c4"),
        ("ce_id", fingerprint(event, label=LABEL).hex().encode()),
        ("ce_time", b"2023-11-14T22:13:20.123Z"),
        ("content-type", b"application/json"),
        ("ce_oncegate", b"gw-1 00c0ffee00c0ffee 42 1763706000123 untrusted time 0"),
    ]
    assert tuple(name for name, _ in headers_of(event)) == HEADERS


@given(st.integers(0, 2**63 - 1), st.from_regex("[0-9a-f]{16}", fullmatch=True))
def test_the_label_is_read_out_of_the_statement(sequence: int, epoch: str) -> None:
    tail = encode_tail(Event("a"), RECEIVED, "coap")
    _, _, headers = encode_record(
        bytes(16), "gw-1", Label(epoch, sequence), tail, ClockTrust.TRUSTED, SharedDay.NONE, None
    )
    for later in (b"", b" a word", b" "):
        assert read_stated_label(headers[-1][1] + later) == ("gw-1", Label(epoch, sequence))


@pytest.mark.parametrize("statement", [b"", b"gw-1", b"gw-1 e 42", b"a b c d e f g", b"\xff b 1 d e f g"])
def test_a_statement_of_another_form_has_no_label(statement: bytes) -> None:
    with pytest.raises(ValueError, match=r"unpack|words|invalid"):
        read_stated_label(statement)


def test_time_of_acceptance_stands_in_for_a_time_that_is_unknown_and_a_dash_for_such_a_bound() -> None:
    headers = dict(headers_of(Event("a", id=1)))
    assert headers["ce_time"] == b"2025-11-21T06:20:00.123Z"
    assert headers["ce_oncegate"] == b"gw-1 00c0ffee00c0ffee 42 1763706000123 untrusted time -"


@given(events)
def test_value_is_json_that_begins_with_the_fingerprint_and_holds_the_event(event: Event) -> None:
    name = fingerprint(event, label=LABEL)
    value = encode_value(name, "gw-1", LABEL, encode_tail(event, RECEIVED, "coap"))
    assert value.startswith(VALUE_PREFIX + name.hex().encode())
    assert value.endswith(b"}")
    entries = json.loads(value)
    assert entries["fingerprint"] == name.hex()
    assert (entries["gateway"], entries["epoch"], entries["sequence"]) == ("gw-1", LABEL.epoch, LABEL.sequence)
    assert (entries["received"], entries["via"]) == (RECEIVED, "coap")
    read_back = read(value)
    assert isinstance(read_back, dict)
    expected = entries_of(event)
    if not event.units:
        expected.pop("units", None)
    assert {field: read_back.get(field) for field in expected} == expected


any_text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
deepest: Value = b"ab"
for _ in range(DEPTH_MAX - 1):
    deepest = {"a": deepest}
DEEPEST = {"a": deepest}


@example(Event("a", data=DEEPEST, ext=DEEPEST), "a", 0, 0, "coap")
@example(Event("a"), 'x","type":"forged', 0, 0, "coap")
@example(Event("a"), "units", 0, 0, "coap")
@example(Event("a", ext={"data": {"ext": {"data": {}}}}), "a", 0, 0, "coap")
@given(events, any_text, st.integers(TIME_MIN, TIME_MAX), st.integers(), st.sampled_from(["coap", "mqtt", "gateway"]))
def test_a_value_is_read_back_as_it_was_written(event: Event, text: str, received: int, offset: int, via: str) -> None:
    event = replace(event, device=text, offset_ms=offset)
    tail = encode_tail(event, received, via)
    assert read_header_fields(tail) == (text, event.type, event.time, received, via)
    data = None if event.data is None else json_text(event.data)
    units = f',"units":{json_text(event.units)}' if event.units else ""
    ext = json_text(event.ext) if event.ext else None
    assert read_data(tail).decode() == ("" if data is None else f'"data":{data}{units}')
    assert read_started(tail) is None
    behind_via = encode_value(bytes(16), "gw-1", LABEL, tail).partition(VIA_START)[2].decode()
    for unknown in ("", ',"later":{"data":{"ext":[{}]}},"n":-1.5e3', f',"x{text.translate(UNQUOTED)}":[true,{{}},"x"]'):
        at = behind_via.index('"') + 1
        for value in (behind_via[:at] + unknown + behind_via[at:], behind_via[:-1] + unknown + "}"):
            found = {name: re.search(exact_text(name), value) for name in OBJECTS}
            read_back = {name: match and match[1] for name, match in found.items()}
            assert read_back == {"data": data, "units": units[len(',"units":') :] or None, "ext": ext}


UNQUOTED = str.maketrans({**dict.fromkeys(map(chr, range(0x20))), '"': None, "\\": None})


@given(maps(values, max_size=40), st.integers(0, 2 * EXT_BYTES_MAX))
def test_ext_is_cut_and_never_refused(ext: dict[str, Value], size: int) -> None:
    ext = {**ext, "long": "ü" * size, "short": 1}
    text = json.loads(b"{" + encode_tail(Event("a", ext=ext), RECEIVED, "coap") + b"}")["ext"]
    whole = json.loads(json_text(ext))
    assert len(json_text(text).encode()) <= EXT_BYTES_MAX
    if len(json_text(ext).encode()) <= EXT_BYTES_MAX:
        assert text == whole
    else:
        assert text.pop("cut") is True
        assert text.items() <= whole.items()


def test_the_table_of_fields_is_that_of_an_event_and_of_its_record() -> None:
    event = Event("a", "b", 1, 2, 3, {"x": 1}, {"x": "m"}, 4, {"rssi": 5})
    written = [*json.loads(b"{" + encode_tail(event, 5, "coap") + b"}"), "possible_duplicate_of"]
    assert [field.name for field in FIELDS] == written
    assert {one.name for one in dataclasses.fields(Event)} == set(written) - {"received", "via", written[-1]}
    assert IDENTITY_FIELDS == ("device", "type", "id", "boot", "time", "data")


@given(any_text, st.none() | st.builds(Label, st.just("00c0ffee00c0ffef"), st.integers(0, 1 << 63)))
def test_the_first_event_of_an_epoch_is_read_back_as_it_was_written(gateway: str, previous: Label | None) -> None:
    condition = GatewayCondition("1.2.3", new_events=3, written_bytes=4_096)
    candidate = started(gateway, LABEL.epoch, previous, RECEIVED, ClockTrust.TRUSTED, None, condition)
    assert read_started(candidate.tail) == (LABEL.epoch, previous)


@pytest.mark.parametrize(
    ("device", "source"),
    [
        ("urn:dev:mac:00158d0001a2b3c4", b"urn:dev:mac:00158d0001a2b3c4"),
        ("coap://[fe80::1]", b"coap://[fe80::1]"),
        ("coap://[fe80::1%25eth0]", b"coap://[fe80::1%25eth0]"),
        ("kitchen", b"kitchen"),
        ("Küche/links", b"K%C3%BCche%2Flinks"),
        ("urn:dev:with space", b"urn%3Adev%3Awith%20space"),
        ("urn:100%", b"urn%3A100%25"),
        ("1:2", b"1%3A2"),
    ],
)
def test_source_is_the_device_where_it_is_a_uri_and_percent_encoded_elsewhere(device: str, source: bytes) -> None:
    assert encode_source(device) == source


@given(events)
def test_the_device_can_be_had_from_the_source(event: Event) -> None:
    assert unquote(encode_source(event.device).decode()) == event.device


@example(TIME_MIN)
@example(TIME_MAX)
@given(st.integers(TIME_MIN, TIME_MAX))
def test_moments_are_rfc3339_with_milliseconds(milliseconds: int) -> None:
    text = rfc3339(milliseconds)
    assert len(text) == len("2023-11-14T22:13:20.123Z")
    assert datetime.fromisoformat(text) == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)


@pytest.mark.guarantee(6)
@pytest.mark.parametrize("characters", [SOURCE_BYTES_KEPT // 4, SOURCE_BYTES_KEPT // 4 + 1, 256])
def test_names_of_devices_that_strangers_choose_take_bounded_memory(characters: int) -> None:
    tracemalloc.start()
    for number in range(SOURCES_KEPT + 2_000):
        device = f"{number:06d}".ljust(characters, "\U0001f600")
        tail = f'"device":"{device}","type":"reading","received":1,"via":"coap"'.encode()
        encode_record(bytes(16), "gw-1", LABEL, tail, ClockTrust.TRUSTED, SharedDay.NONE, None)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < 12 << 20
