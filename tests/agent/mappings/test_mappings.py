"""Mappings make the events that the products' messages are, refuse with a reason, and do bounded work."""

import json
import tomllib
from pathlib import Path
from typing import Any

import jmespath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.decode.decoded import Decoded, Undecodable
from agent.decode.delivery_body import decode
from agent.delivery import Delivery, ForeignFormat
from agent.mappings import catalog
from agent.mappings.mapping import EventMapping, MappingError, read
from agent.mappings.plain import WORK_MAX, plain
from contract.event import Event
from contract.record import encode_tail
from tests.agent.mappings.payloads import PUBLISHED, Published
from tests.support.calls import counted_calls

CALLS_PER_STEP = 16
"""Of Python or C, whatever the expression."""


def decoded(mapping: EventMapping, body: str | bytes, topic: str = "") -> Decoded:
    content = body if isinstance(body, bytes) else body.encode()
    levels = topic.split("/") if topic else []
    return decode(Delivery(content, ForeignFormat(mapping, levels, {}), "mqtt", f"mqtt:{topic}"))


def made(text: str) -> EventMapping:
    return read({"name": "made", **tomllib.loads(text)})


def reason(mapping: EventMapping, body: str) -> str:
    try:
        found = decoded(mapping, body)
    except Undecodable as error:
        return str(error)
    [rejected] = found.rejected
    assert found.events == ()
    return rejected.reason


@pytest.mark.parametrize("published", PUBLISHED, ids=lambda one: f"{one.mapping} {one.topic}")
def test_what_a_product_publishes_is_its_event(published: Published) -> None:
    found = decoded(catalog.builtin()[published.mapping], published.body, published.topic)
    assert found.rejected == ()
    if published.event is None:
        assert (found.events, found.skipped) == ((), 1)
        return
    expected = dict(published.event)
    ext = {"mapping": published.mapping, **expected.pop("ext", {})}
    assert found.events == (Event(**expected, ext=ext),)


def test_each_built_in_mapping_has_messages() -> None:
    assert {published.mapping for published in PUBLISHED} == set(catalog.builtin())


@pytest.mark.parametrize("name", catalog.builtin())
def test_what_is_printed_can_be_copied(name: str) -> None:
    [table] = tomllib.loads(catalog.written(name))["mappings"]
    assert read(table) == catalog.builtin()[name]


def test_an_array_becomes_an_event_for_each_element() -> None:
    mapping = made("""
        each = "body.readings"
        skip = "item.kind == 'state'"
        device = "plant:{body.plant}/{item.n}"
        id = "item.n"
        time = "item.ts"
        time_format = "s"
        data = { temperature = "item.t", humidity = "item.h" }
        units = { temperature = "Cel" }
    """)
    readings = '{"n":1,"ts":1700000000.0005,"t":20},{"kind":"state"},{"n":3,"t":1,"h":2},{"n":4}'
    found = decoded(mapping, f'{{"plant":7.0,"readings":[{readings}]}}')
    units, ext = {"temperature": "Cel"}, {"mapping": "made"}
    assert found.events == (
        Event("plant:7/1", id=1, time=1_700_000_000_000, data={"temperature": 20}, units=units, ext=ext),
        Event("plant:7/3", id=3, data={"temperature": 1, "humidity": 2}, units=units, ext=ext),
    )
    assert found.skipped == 1
    assert [one.reason for one in found.rejected] == ["mapping made: data: yields nothing"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('{"d":"x"}', "mapping made: data = 'body.v': yields nothing"),
        ('{"v":{"t":1}}', "mapping made: device = 'd:{body.d}': yields nothing"),
        ('{"d":"x","v":3}', "mapping made: data = 'body.v': yields no object"),
        (
            '{"d":["x"],"v":{"t":1}}',
            "mapping made: device = 'd:{body.d}': 'd:{body.d}': expected text or a number in braces",
        ),
        ('{"d":"x","v":{"t":1},"ts":"soon"}', "mapping made: time = 'body.ts': yields no number"),
        ('{"d":"x","v":{"t":1},"ts":1e300}', "mapping made: time = 'body.ts': yields no time in the years 1 to 9999"),
        ('{"d":"x","v":{"t":1},"n":true}', "mapping made: id = 'body.n': yields neither an integer nor text"),
        ('{"d":"x","v":{"t":1},"n":1.5}', "mapping made: id is not an integer or text"),
        ('{"d":"x","v":{"t":NaN}}', "mapping made: data: NaN is not a number in JSON"),
        ("[]", "mapping made: device = 'd:{body.d}': yields nothing"),
    ],
)
def test_what_is_no_event_is_rejected_with_mapping_key_and_expression(body: str, expected: str) -> None:
    mapping = made('device = "d:{body.d}"\nid = "body.n"\ntime = "body.ts"\ndata = "body.v"')
    assert reason(mapping, body) == expected


def test_a_reason_holds_no_value_however_large() -> None:
    mapping = made('device = "d"\ndata = "omit(body, [topic[0]])"')
    assert reason(mapping, json.dumps(list(range(9_000)))).endswith("omit() takes object, not array")


def test_of_a_key_that_is_there_twice_the_last_counts() -> None:
    mapping = made('device = "d"\ndata = "body.v"')
    [event] = decoded(mapping, '{"v":{"t":1,"t":2}}').events
    assert event.data == {"t": 2}
    [event] = decoded(mapping, '{"v":{"t":{"$bytes":"AQ"}}}').events
    assert event.data == {"t": b"\1"}


def test_reserved_devices_and_types_are_refused_as_from_everybody() -> None:
    mapping = made('device = "{body.d}"\ntype = "{body.t}"\ndata = { v = "body.v" }')
    assert "the gateways themselves" in reason(mapping, '{"d":"urn:oncegate:gateway:gw1","t":"x","v":1}')
    assert "the gateway's own" in reason(mapping, '{"d":"x","t":"gateway.gap","v":1}')


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('data = "body"', "device: expected"),
        ('device = "d"', "data: expected"),
        ('device = "{body.d"\ndata = "body"', "the braces are not balanced"),
        ('device = "d"\ndata = "body..x"', "data: 'body..x': "),
        ('device = "d"\ndata = "nothing(body)"', "unknown function nothing()"),
        (
            'device = "d"\ndata = "body"\ntime = "body.t"\ntime_format = "days"',
            "time_format: expected one of ms, s, rfc3339",
        ),
        ('device = "d"\ndata = "body"\ntime_format = "s"', "time_format: expected only with time"),
        ('device = "d"\ndata = "body"\ndate = "x"', "unknown key 'date'"),
        ('device = "d"\ndata = "body"\nunits = {t = 1}', "units: expected"),
        ('device = "d"\ndata = {t = 1}', "expected an expression, as text"),
        ('name = "json"\ndevice = "d"\ndata = "body"', "name: expected"),
        ('device = "d"\ndata = { t = "body.Outside Temp" }', 'is written in quotes: body."em:0"'),
        (
            'device = "a:{dev}"\ndata = "body"',
            "'dev': unknown name 'dev'; it begins with one of body, topic, headers, item",
        ),
        ('device = "d"\ndata = "body || [map(&a, body), bodi[*].x]"', "unknown name 'bodi'"),
    ],
)
def test_a_wrong_mapping_is_refused_with_key_and_reason(text: str, expected: str) -> None:
    with pytest.raises(MappingError, match=r".*") as error:
        made(text)
    assert expected in str(error.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[[mappings]]\nname = ", "Invalid value"),
        (f"[[mappings]]\nname = {'[' * 6_000}", "nested too deeply"),
        (f"[[mappings]]\nname = {'9' * 6_000}", "4300 digits"),
        ("[mappings]\n", "expected tables"),
        ('[[mappings]]\nname = "x"\ndata = "body"\n', "x: device: expected"),
    ],
)
def test_a_file_of_mappings_that_cannot_be_read_is_named(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "more.toml"
    file.write_text(text)
    with pytest.raises(MappingError, match=rf"{file}: .*{reason}"):
        catalog.catalog((), tmp_path)


@pytest.mark.parametrize(
    ("time_format", "time", "milliseconds"),
    [
        ("ms", "1760000000001.499999999999999999", 1760000000001),
        ("ms", "1760000000000.500000000000000001", 1760000000001),
        ("ms", "1760000000000.5", 1760000000000),
        ("ms", "1760000000001.5", 1760000000002),
        ("s", "17600000000.001499999999999999", 17600000000001),
        ("s", "176000000000.000500000000000001", 176000000000001),
        ("rfc3339", "2026-01-01T00:00:00.001499999999999999Z", 1767225600001),
        ("rfc3339", "2026-01-01T00:00:00.5+01:00", 1767222000500),
    ],
)
def test_a_time_is_rounded_to_milliseconds_once_and_half_to_even(
    time_format: str, time: str, milliseconds: int
) -> None:
    mapping = made(f'device = "d"\ndata = "body"\ntime = "body.t"\ntime_format = "{time_format}"')
    [event] = decoded(mapping, json.dumps({"t": time})).events
    assert event.time == milliseconds


@pytest.mark.parametrize(
    "expression",
    [
        "body[*].[to_string(@), to_string(@)] | [[*], [*]] | [@, @] | [@, @][] | [@, @][] | [@, @][] | [@, @][]",
        "[body, body] | [[*], [*]][] | [@, @][] | [@, @][] | to_string(@)",
        "body[?contains(keys(@), 'x')] | [*].values(@)[] | [*].{a: @, b: @, c: @} | map(&values(@), @)[]",
        "sort_by(body, &to_string(@))[*].keys(@)[]",
        "to_string(topic" + "|[@, @]" * 40 + ")",
        "(topic" + "|[@, @]" * 40 + ") == (topic" + "|[@, @]" * 40 + ")",
        "topic" + "|[@, @]" * 40,
        "body[0].{a: @, b: @}" + ".{a: @, b: @}" * 40,
        "body[0]" + " | merge(object('a', @), object('b', @))" * 20,
        "replace(to_string(body), 'x', to_string(body))",
        "join(to_string(body), body[*].to_string(@))",
    ],
)
def test_work_is_bounded_for_any_expression(expression: str) -> None:
    mapping = made(f'device = "d"\ndata = {{ v = "{expression}" }}')
    body = json.dumps([{"x": number} for number in range(6_000)])
    with counted_calls() as calls:
        found = reason(mapping, body)
    assert calls.count < WORK_MAX * CALLS_PER_STEP
    assert f"more than {WORK_MAX} steps" in found or "values" in found


NAMES = st.sampled_from(
    [
        *("value", "ts", "Time", "params", "method", "object", "data", "model", "id"),
        *("deviceInfo", "devEui", "uplink_message"),
    ]
)
BODIES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


PLAIN = st.recursive(
    st.sampled_from(
        ["@", "value", "data", "model", "ts", "[0]", "[-1]", "`0`", "`1`", "`true`", "`false`", "`null`", "`{}`", "''"]
    ),
    lambda inner: st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from(["||", "&&", "==", "!="]), inner),
        st.builds("!{}".format, inner),
        st.builds("{{a: {}, value: {}}}".format, inner, inner),
        st.builds("{}.{}".format, st.sampled_from(["value", "data"]), st.sampled_from(["value", "{a: value}"])),
        st.builds("{}[{}]".format, st.sampled_from(["value", "data"]), st.integers(-2, 2)),
    ),
    max_leaves=6,
)


@given(PLAIN, BODIES)
def test_a_plain_expression_yields_what_the_interpreter_does(expression: str, body: Any) -> None:
    found = plain(jmespath.compile(expression).parsed)
    assert found is not None
    assert repr(found(body)) == repr(jmespath.search(expression, body))


@pytest.mark.parametrize("name", catalog.builtin())
@given(BODIES, st.text("a/", max_size=12))
def test_nothing_raises_whatever_is_published(name: str, body: Any, topic: str) -> None:
    try:
        found = decoded(catalog.builtin()[name], json.dumps(body), topic)
    except Undecodable:
        return
    assert found.skipped or found.events or found.rejected
    for event in found.events:
        encode_tail(event, 0, "mqtt")
