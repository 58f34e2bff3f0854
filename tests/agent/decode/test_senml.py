import json

import cbor2
import pytest

from agent.decode.decoded import Undecodable
from agent.decode.senml import RECORDS_MAX
from agent.delivery import Media
from contract.event import TIME_MAX, TIME_MIN, Event
from tests.agent.decode.deliveries import SENDER, deliver, deliver_senml, only, reason_of

DEVICE = "urn:dev:ow:10e2073a01080063"


def test_rfc_8428_single_data_point() -> None:
    assert only(deliver_senml([{"n": f"{DEVICE}", "u": "Cel", "v": 23.1}])) == Event(
        "urn:dev:ow", data={"10e2073a01080063": 23.1}, units={"10e2073a01080063": "Cel"}
    )


def test_rfc_8428_multiple_data_points() -> None:
    pack = [{"bn": f"{DEVICE}:", "n": "voltage", "u": "V", "v": 120.1}, {"n": "current", "u": "A", "v": 1.2}]
    assert only(deliver_senml(pack)) == Event(
        DEVICE, data={"voltage": 120.1, "current": 1.2}, units={"voltage": "V", "current": "A"}
    )


def test_rfc_8428_times_make_events() -> None:
    pack = [
        {
            "bn": "urn:dev:ow:10e2073a0108006:",
            "bt": 1.276020076001e9,
            "bu": "A",
            "bver": 5,
            "n": "voltage",
            "u": "V",
            "v": 120.1,
        },
        {"n": "current", "t": -5, "v": 1.2},
        {"n": "current", "t": -4, "v": 1.3},
        {"n": "current", "v": 1.7},
    ]
    first, second, third = deliver_senml(pack).events
    assert first == Event(
        "urn:dev:ow:10e2073a0108006",
        time=1_276_020_076_001,
        data={"voltage": 120.1, "current": 1.7},
        units={"voltage": "V", "current": "A"},
    )
    assert (second.time, second.data) == (1_276_020_071_001, {"current": 1.2})
    assert (third.time, third.data) == (1_276_020_072_001, {"current": 1.3})


def test_rfc_8428_collection_of_value_kinds() -> None:
    pack = [
        {"bn": f"{DEVICE}:", "n": "temp", "u": "Cel", "v": 23.1},
        {"n": "label", "vs": "Machine Room"},
        {"n": "open", "vb": False},
        {"n": "nfc-reader", "vd": "aGkgCg"},
    ]
    event = only(deliver_senml(pack))
    assert event.data == {"temp": 23.1, "label": "Machine Room", "open": False, "nfc-reader": b"hi \n"}
    assert event.units == {"temp": "Cel"}


def test_rfc_8428_cbor() -> None:
    body = cbor2.dumps(
        [{-2: f"{DEVICE}/", -3: 1.276020076e9, -4: "A", 0: "voltage", 1: "V", 2: 120.1}, {0: "raw", 8: b"\x01"}]
    )
    assert only(deliver(body, Media.SENML_CBOR)) == Event(
        DEVICE, time=1_276_020_076_000, data={"voltage": 120.1, "raw": b"\x01"}, units={"voltage": "V", "raw": "A"}
    )


@pytest.mark.parametrize(
    ("pack", "authenticated", "device", "name"),
    [
        ([{"bn": "a:", "n": "t", "v": 1}], None, "a", "t"),
        ([{"bn": "a/", "n": "t", "v": 1}], None, "a", "t"),
        ([{"bn": "a", "n": "t", "v": 1}], None, "a", "t"),
        ([{"bn": "a::", "n": "t", "v": 1}], None, "a:", "t"),
        ([{"bn": "a:", "n": "b:t", "v": 1}], "proven", "a", "b:t"),
        ([{"bn": "a:", "v": 1}], None, "a", "value"),
        ([{"n": "a:b/t", "v": 1}], None, "a:b", "t"),
        ([{"n": "a/b:t", "v": 1}], None, "a/b", "t"),
        ([{"n": "a:", "v": 1}], None, "a", "value"),
        ([{"n": "a:t", "v": 1}], "proven", "proven", "a:t"),
        ([{"n": "t", "v": 1}], "proven", "proven", "t"),
        ([{"n": "t", "v": 1}], None, SENDER, "t"),
        ([{"n": ":t", "v": 1}], None, SENDER, ":t"),
        ([{"v": 1}], None, SENDER, "value"),
        ([{"bn": "", "n": "t", "v": 1}], None, SENDER, "t"),
    ],
)
def test_device_is_base_name_or_proven_or_in_the_name(
    pack: list[object], authenticated: str | None, device: str, name: str
) -> None:
    event = only(deliver_senml(pack, authenticated=authenticated))
    assert (event.device, event.data) == (device, {name: 1})


def test_device_in_the_query_stands_for_a_base_name() -> None:
    assert only(deliver_senml([{"n": "x:t", "v": 1}], {"d": "a"})) == Event("a", data={"x:t": 1})
    assert "differs" in reason_of(deliver_senml([{"bn": "b", "v": 1}], {"d": "a"}))


@pytest.mark.parametrize(
    ("times", "time", "offset"),
    [
        ({}, None, None),
        ({"t": 0}, None, 0),
        ({"t": -5}, None, -5000),
        ({"bt": 10, "t": 0.0005}, None, 10_000),
        ({"t": 0.0015}, None, 2),
        ({"t": 0.0025}, None, 2),
        ({"t": 268435455}, None, 268_435_455_000),
        ({"t": 268435456}, 268_435_456_000, None),
        ({"bt": 1.7e9, "t": 0.123}, 1_700_000_000_123, None),
        ({"bt": 1700000000, "t": -10}, 1_699_999_990_000, None),
        ({"bt": 268435456, "t": -1}, None, 268_435_455_000),
        ({"t": TIME_MAX / 1000}, TIME_MAX, None),
    ],
)
def test_time_is_absolute_from_2_to_the_28_on_and_relative_below(
    times: dict[str, float], time: int | None, offset: int | None
) -> None:
    event = only(deliver_senml([{"bn": "a", "v": 1} | times]))
    assert (event.time, event.offset_ms) == (time, offset)


def test_base_values_add_up_and_hold_until_changed() -> None:
    pack = [
        {"bn": "a", "bv": 20, "bs": 100},
        {"n": "x", "v": 1.5},
        {"n": "y", "v": 2, "s": 5},
        {"n": "z"},
        {"n": "b", "vb": True},
        {"bv": 0, "n": "w", "v": 1},
    ]
    assert only(deliver_senml(pack)).data == {"x": 21.5, "y": 22, "y#sum": 105, "z": 20, "b": True, "w": 1}


def test_a_sum_may_stand_alone_and_has_a_name_of_its_own() -> None:
    pack = [{"bn": "a", "n": "energy", "u": "W", "s": 5}, {"n": "power", "v": 1}]
    assert only(deliver_senml(pack)) == Event("a", data={"energy#sum": 5, "power": 1}, units={"energy#sum": "W"})
    assert only(deliver_senml([{"bn": "a", "bs": 7, "n": "e"}])).data == {"e#sum": 7}


def test_a_name_already_used_starts_another_event() -> None:
    pack = [
        {"bn": "a", "n": "x", "v": 1},
        {"n": "y", "v": 2},
        {"n": "x", "v": 1},
        {"n": "z", "v": 3},
        {"n": "x", "v": 1},
    ]
    assert [event.data for event in deliver_senml(pack).events] == [{"x": 1, "y": 2}, {"x": 1, "z": 3}, {"x": 1}]


def test_names_that_are_equal_after_nfc_are_one_name() -> None:
    pack = [{"bn": "a", "n": "é", "v": 1}, {"n": "e\u0301", "v": 2}]
    assert [event.data for event in deliver_senml(pack).events] == [{"é": 1}, {"é": 2}]


def test_records_of_several_devices_form_their_own_events() -> None:
    pack = [
        {"bn": "a:", "n": "x", "v": 1},
        {"bn": "b:", "n": "x", "v": 1},
        {"n": "y", "v": 2},
        {"bn": "a:", "n": "y", "v": 2},
    ]
    assert [(event.device, event.data) for event in deliver_senml(pack).events] == [
        ("a", {"x": 1, "y": 2}),
        ("b", {"x": 1, "y": 2}),
    ]


@pytest.mark.guarantee(2)
def test_packs_cut_differently_between_instants_give_the_same_events() -> None:
    whole = [{"bn": "a:", "bt": 1.7e9, "n": "x", "v": 1}, {"n": "y", "v": 2}, {"n": "x", "t": 1, "v": 3}]
    parts = (
        [{"bn": "a:", "n": "y", "t": 1.7e9, "v": 2}, {"n": "x", "t": 1.7e9, "v": 1}],
        [{"n": "a:x", "t": 1.7e9 + 1, "v": 3}],
    )
    assert deliver_senml(whole).events == sum((deliver_senml(part).events for part in parts), ())


def test_unknown_fields_are_passed_over_and_update_times_do_not_count() -> None:
    event = only(deliver_senml([{"bn": "a", "v": 1, "ut": 60, "colour": "red", "bver": 10}]))
    assert event == Event("a", data={"value": 1})


@pytest.mark.parametrize(
    "pack",
    [
        {"n": "x", "v": 1},
        [[{"n": "x", "v": 1}]],
        [1],
        [{"v": 1}, {"v": 1, "must_": 1}],
        [{"v": 1, "_": 1}],
        [{"v": 1, "bver": 11}],
        [{"v": 1, "bver": 0}],
        [{"v": 1, "bver": "10"}],
        [{"v": 1, "bn": 1}],
        [{"v": 1, "bn": None}],
        [{"v": 1, "bt": "now"}],
        [{"v": 1, "bt": True}],
        [{"v": 1, "bv": float("nan")}],
        [{"v": 1, "bu": 1}],
        [{"v": 1, "bs": [1]}],
        [{"v": 1}] * (RECORDS_MAX + 1),
    ],
    ids=lambda pack: str(pack)[:40],
)
def test_a_pack_that_cannot_be_resolved_is_undecodable(pack: object) -> None:
    with pytest.raises(Undecodable, match="SenML"):
        deliver_senml(pack)


def test_a_record_with_a_field_twice_makes_its_pack_undecodable() -> None:
    with pytest.raises(Undecodable, match="twice"):
        deliver(b'[{"bn":"a","bn":"b","v":1}]', Media.SENML_JSON)
    with pytest.raises(Undecodable, match="twice"):
        deliver(cbor2.dumps([{0: "x", "n": "y", 2: 1}]), Media.SENML_CBOR)


@pytest.mark.parametrize("key", ["f93c00", "f5", "f6", "f7", "e1", "4101", "80", "8101", "a0"])
def test_a_label_that_is_neither_an_integer_nor_text_makes_its_pack_undecodable(key: str) -> None:
    with pytest.raises(Undecodable, match="SenML"):
        deliver(b"\x82" + cbor2.dumps({0: "x", 2: 1}) + bytes.fromhex("a20201" + key + "00"), Media.SENML_CBOR)


@pytest.mark.parametrize("value", ["01", "c24101", "d9d9f701", "1801", "fb3ff0000000000000"])
def test_a_number_of_any_encoding_is_a_value(value: str) -> None:
    record = bytes.fromhex("a202" + value + "0061" + b"x".hex())
    for body in (b"\x81" + record, b"\xd9\xd9\xf7\x9f" + record + b"\xff", b"\x81\xd9\xd9\xf7" + record):
        assert only(deliver(body, Media.SENML_CBOR)).data == {"x": 1}


@pytest.mark.guarantee(6)
@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"v": "1"}, "v is not a finite number"),
        ({"v": None}, "v is not a finite number"),
        ({"v": True}, "v is not a finite number"),
        ({"v": float("nan")}, "NaN"),
        ({"vs": 1}, "vs is not text"),
        ({"vs": "\ud800"}, "surrogate"),
        ({"vb": 1}, "vb is not true or false"),
        ({"vd": "+"}, "vd: text is not base64url"),
        ({"vd": 1}, "vd is not bytes"),
        ({"s": "1"}, "s is not a finite number"),
        ({"v": 1, "vs": "x"}, "both v and vs"),
        ({"u": "m"}, "no value"),
        ({"n": 1, "v": 1}, "n is not text"),
        ({"n": "\ud800", "v": 1}, "surrogate"),
        ({"n": "$bytes", "v": 1}, "$bytes"),
        ({"u": 1, "v": 1}, "u is not text"),
        ({"t": "x", "v": 1}, "t is not a finite number"),
        ({"t": 1e300, "v": 1}, "time is outside"),
        ({"t": TIME_MIN / 1000 - 1e10, "v": 1}, "time is outside"),
        ({"t": float("inf"), "v": 1}, "Infinity"),
        ({"bv": 1e308, "v": 1.7e308}, "not finite"),
    ],
)
def test_a_wrong_record_rejects_its_event_and_no_other(record: dict[str, object], reason: str) -> None:
    pack = [{"bn": "a", "bt": 1.7e9, "n": "x", "v": 1}, {"n": "z", "t": 5} | record, {"n": "x", "t": 9, "vb": True}]
    decoded = deliver_senml(pack)
    assert [event.time for event in decoded.events] == [1_700_000_000_000, 1_700_000_009_000]
    [rejected] = decoded.rejected
    assert reason in rejected.reason
    assert rejected.device == "a"
    assert all(entry["bn"] == "a" for entry in json.loads(rejected.raw))


def test_a_wrong_record_takes_those_of_its_own_event_along() -> None:
    decoded = deliver_senml([{"bn": "a", "n": "x", "v": 1}, {"n": "y", "v": "wrong"}, {"n": "z", "v": 1}])
    assert "v is not" in reason_of(decoded)
    assert [entry["n"] for entry in json.loads(decoded.rejected[0].raw)] == ["x", "y", "z"]


@pytest.mark.parametrize("levels", range(850, 1000))
def test_a_wrong_value_of_any_depth_is_rejected_or_undecodable(levels: int) -> None:
    try:
        decoded = deliver(b'[{"bn":"a","v":' + b"[" * levels + b"]" * levels + b"}]", Media.SENML_JSON)
    except Undecodable:
        return
    assert json.loads(decoded.rejected[0].raw) == [{"bn": "a", "v": "list", "bt": None}]


def test_an_integer_sum_beyond_64_bits_is_a_rejected_event() -> None:
    assert "outside" in reason_of(deliver_senml([{"bn": "a", "bv": (1 << 64) - 1, "v": 1}]))


@pytest.mark.parametrize("pack", [[], [{}], [{"bn": "a", "bt": 1.7e9}]])
def test_a_pack_without_a_value_holds_no_event(pack: list[object]) -> None:
    decoded = deliver_senml(pack)
    assert not decoded.events
    assert not decoded.rejected


@pytest.mark.parametrize("base_name", [":", "urn:oncegate:gateway:1:", "x" * 300])
def test_a_base_name_is_a_device_like_any_other(base_name: str) -> None:
    reason_of(deliver_senml([{"bn": base_name, "v": 1}]))
