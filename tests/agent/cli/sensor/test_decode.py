"""`oncegate decode` sees what the gateway sees."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from struct import pack
from typing import Any

import cbor2
import pytest

from agent.cli.arguments import INPUT_BYTES_MAX
from tests.agent.cli.running import Run, RunningAgent

EVENT = {"device": "urn:dev:mac:00158d0001a2b3c4", "id": 17, "data": {"temperature": 21.5}}
FINGERPRINT = "1876d2e5f34f91105e52555b000b5edc"
MEDIA = {
    "json": "application/json",
    "cbor": "application/cbor",
    "senml-json": "application/senml+json",
    "senml-cbor": "application/senml+cbor",
}
SENML = [
    {"bn": "urn:dev:mac:00158d0001a2b3c4/", "bt": 1_767_225_600, "n": "t", "u": "Cel", "v": 20},
    {"n": "h", "v": 4},
]
SENML_CBOR = [{-2: "urn:dev:mac:00158d0001a2b3c4/", -3: 1_767_225_600, 0: "t", 1: "Cel", 2: 20}, {0: "h", 2: 4}]
PACK = [EVENT, {"device": "urn:b", "boot": "x", "id": 1}, {"device": "urn:b", "id": 1, "colour": 1}]

Decode = Callable[..., tuple[int, list[dict[str, Any]], str]]


@pytest.fixture
def decode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, oncegate: Run) -> Decode:
    """Return a function that decodes a body; without a configuration unless its words name one."""
    monkeypatch.setenv("ONCEGATE_CONFIG", str(tmp_path / "none.toml"))

    def run(body: bytes, *words: str) -> tuple[int, list[dict[str, Any]], str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(body)))
        status, out, error = oncegate("decode", "--json", *words)
        return status, [json.loads(line) for line in out.splitlines()], error

    return run


@pytest.mark.parametrize(
    ("format_", "body"),
    [
        ("json", json.dumps(EVENT).encode()),
        ("json", json.dumps(PACK).encode()),
        ("cbor", cbor2.dumps(PACK)),
        ("senml-json", json.dumps(SENML).encode()),
        ("senml-cbor", cbor2.dumps(SENML_CBOR)),
    ],
)
def test_the_fingerprints_are_those_that_the_gateway_answers_with(
    format_: str, body: bytes, decode: Decode, running_agent: RunningAgent
) -> None:
    body = body.replace(b"00158d0001a2b3c4", b"00158d0001a2b3c5")  # tests of other commands send the other one
    answer = running_agent.api.post("/api/v1/events", body, MEDIA[format_]).document
    status, outcomes, _ = decode(body, "--format", format_)
    events = [one["fingerprint"] for one in outcomes if one["outcome"] == "event"]
    assert events == answer["fingerprints"]
    assert (len(outcomes) - len(events), status) == (answer["rejected"], 1 if answer["rejected"] else 0)


def test_the_format_is_found_by_the_first_byte_and_hex_is_read(decode: Decode) -> None:
    encoded = cbor2.dumps(EVENT)
    for body, words in (
        (json.dumps(EVENT).encode(), ()),
        (encoded, ()),
        (encoded.hex(" ").encode() + b"\n", ("--hex",)),
    ):
        status, (event,), _ = decode(body, *words)
        assert (status, event["fingerprint"]) == (0, FINGERPRINT)
    assert {name: event[name] for name in EVENT} == EVENT
    assert decode(b"xyz", "--hex")[0] == 1


def test_a_rejected_event_and_a_refused_body_have_their_reasons(decode: Decode) -> None:
    assert [one.get("reason") for one in decode(json.dumps(PACK).encode())[1]] == [None, None, "unknown field 'colour'"]
    for body, words, coap, reason in (
        (b"", (), "4.00", "the body is empty"),
        (b"{", (), "4.00", "JSON:"),
        (b"[]", (), "4.00", "the body holds no event"),
        (b'{"device":"urn:oncegate:x"}', (), "4.00", "are the gateways themselves"),
        (b"{}", ("--query", "d=x&colour=red"), "4.00", "unknown parameter 'colour'"),
        (json.dumps(EVENT).encode(), ("--device", "urn:other"), "4.03", "the credentials belong to 'urn:other' only"),
    ):
        status, (outcome,), _ = decode(body, *words)
        assert (status, outcome["outcome"], outcome["coap"]) == (1, "refused", coap)
        assert reason in outcome["reason"]


def test_a_body_that_is_too_large_for_the_gateway_is_refused(decode: Decode, tmp_path: Path) -> None:
    def body(size: int) -> bytes:
        return json.dumps(EVENT).encode().ljust(size)

    assert decode(body(65_536))[0] == 0
    status, (outcome,), _ = decode(body(65_537))
    assert (status, outcome["coap"], outcome["http"]) == (1, "4.13", 413)
    assert outcome["reason"] == "the body has 65537 bytes, more than coap.max_body_bytes, 65536"
    configuration = tmp_path / "oncegate.toml"
    configuration.write_text(
        '[gateway]\nid = "gw1"\n[kafka]\nbootstrap_servers = "127.0.0.1:1"\n[coap]\nmax_body_bytes = 200\n'
        '[mqtt]\nmax_body_bytes = 300\n[[mqtt.subscriptions]]\ntopic = "field/{device}/up"\nformat = "json"\n'
    )
    chosen = ("--config", str(configuration))
    assert [decode(body(size), *chosen)[0] for size in (200, 201)] == [0, 1]
    field = ("--topic", "field/urn:dev:mac:00158d0001a2b3c4/up", *chosen)
    assert [decode(body(size), *field)[1][0]["outcome"] for size in (300, 301)] == ["event", "rejected"]
    _, (outcome,), _ = decode(body(301), "--mapping", "tasmota", *chosen)
    assert "bytes" not in outcome["reason"]
    status, (outcome,), _ = decode(body(65_537), "--mapping", "tasmota", *chosen)
    assert (status, outcome["http"]) == (1, 413)
    assert outcome["reason"] == "the body has 65537 bytes, more than http.max_body_bytes, 65536"


def test_a_query_and_an_authenticated_device_complete_the_event(decode: Decode) -> None:
    words = ("--query", "?d=urn%3Adev%3Amac%3A00158d0001a2b3c4&id=17")
    assert decode(b'{"data":{"temperature":21.5}}', *words)[1][0]["fingerprint"] == FINGERPRINT
    device = ("--device", "urn:dev:mac:00158d0001a2b3c4")
    assert decode(b'{"id":17,"data":{"temperature":21.5}}', *device)[1][0]["fingerprint"] == FINGERPRINT
    assert "twice" in decode(b"{}", "--query", "d=x", "--query", "d=y")[2]


def test_without_id_and_time_only_the_gateway_can_make_the_fingerprint(decode: Decode) -> None:
    status, (event,), _ = decode(b'{"device":"urn:x","data":{"a":1}}')
    assert (status, event["fingerprint"]) == (0, None)


@pytest.mark.parametrize(
    ("form", "head", "decimal", "lossy"),
    [
        (">e", b"\xf9", 21.1, True),
        (">f", b"\xfa", 21.1, True),
        (">f", b"\xfa", 21.5, False),
        (">d", b"\xfb", 21.1, False),
    ],
)
def test_a_decimal_in_a_short_float_is_a_warning(
    decode: Decode, form: str, head: bytes, decimal: float, lossy: bool
) -> None:
    (event,) = decode(b"\xa3\x66device\x61a\x62id\x01\x64data\xa1\x61x" + head + pack(form, decimal))[1]
    warnings = event.get("warnings", {})
    assert list(warnings) == ["short-float"] * lossy
    assert not lossy or "to be 21.1 in" in warnings["short-float"]


def test_what_endangers_an_event_by_itself_is_a_warning(decode: Decode) -> None:
    status, (seconds,), _ = decode(json.dumps({**EVENT, "time": 1_767_225_600}).encode())
    assert (status, list(seconds["warnings"])) == (0, ["time-before-2000"])
    (unnamed,) = decode(b'{"id":1,"data":{"a":1}}')[1]
    assert list(unnamed["warnings"]) == ["unnamed"]
    assert "warnings" not in decode(json.dumps({**EVENT, "time": 1_767_225_600_000}).encode())[1][0]


def test_a_publication_of_zigbee2mqtt_needs_the_list_of_devices(decode: Decode, tmp_path: Path) -> None:
    message = b'{"temperature":21.5,"linkquality":80,"last_seen":"2026-01-01T00:00:00.123Z"}'
    topic = ("--topic", "zigbee2mqtt/kitchen")
    assert "--devices devices.json" in decode(message, *topic)[2]
    devices = tmp_path / "devices.json"
    devices.write_text('[{"friendly_name":"kitchen","ieee_address":"0x00158d0001a2b3c4"}]')
    status, (event,), _ = decode(message, *topic, "--devices", str(devices))
    assert (status, event["device"]) == (0, EVENT["device"])
    assert (event["via"], event["time"]) == ("zigbee2mqtt", 1_767_225_600_123)
    assert (event["data"], event["ext"]) == ({"temperature": 21.5}, {"linkquality": 80})
    quality = {"linkquality": {"$bytes": "eHk"}}
    assert decode(json.dumps(quality).encode(), *topic, "--devices", str(devices))[1][0]["ext"] == quality
    assert "no device of this name" in decode(message, "--topic", "zigbee2mqtt/hall", "--devices", str(devices))[2]
    assert "is state, and no event" in decode(message, "--topic", "zigbee2mqtt/bridge/info")[2]
    assert "--format zigbee2mqtt: needs --topic" in decode(message, "--format", "zigbee2mqtt")[2]
    assert "no subscription matches" in decode(message, "--topic", "elsewhere")[2]
    (rejected,) = decode(b"[1]", *topic, "--devices", str(devices))[1]
    assert (rejected["outcome"], rejected["raw"]) == ("rejected", b"[1]".hex())
    devices.write_text("{}")
    assert "not Zigbee2MQTT's list of devices" in decode(message, *topic, "--devices", str(devices))[2]


def test_the_configuration_applies_where_there_is_one(decode: Decode, tmp_path: Path) -> None:
    configuration = tmp_path / "oncegate.toml"
    configuration.write_text(
        '[gateway]\nid = "gw1"\n[kafka]\nbootstrap_servers = "127.0.0.1:1"\n[devices]\ndeny = ["urn:denied"]\n'
        '[[identity.rules]]\ndevice = "urn:restamped"\nfields = ["device", "id"]\n'
        '[mqtt]\n[[mqtt.subscriptions]]\ntopic = "field/{device}/up"\nformat = "json"\n'
    )
    chosen = ("--config", str(configuration))
    assert decode(b'{"device":"urn:denied","id":1}', *chosen)[1][0]["coap"] == "4.03"
    one, other = (
        decode(b'{"device":"urn:restamped","id":1,"time":%d}' % time, *chosen)[1][0] for time in (1_000, 2_000)
    )
    assert one["identity"] == ["device", "id"]
    assert one["fingerprint"] == other["fingerprint"]
    (published,) = decode(b'{"id":1}', "--topic", "field/tank-1/up", *chosen)[1]
    assert (published["device"], published["via"]) == ("tank-1", "mqtt")


@pytest.mark.parametrize(
    "words",
    [
        *(("decode", "/dev/zero"), ("decode", "-"), ("fingerprint", "/dev/zero"), ("fingerprint", "-")),
        ("decode", "/dev/null", "--topic", "zigbee2mqtt/x", "--devices", "/dev/zero"),
    ],
)
def test_an_input_without_end_is_refused_at_its_limit(
    words: tuple[str, ...], oncegate: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Path("/dev/zero").open(encoding="utf-8") as zeros:
        monkeypatch.setattr(sys, "stdin", zeros)
        status, out, error = oncegate(*words)
    assert (status, out) == (1, "")
    assert f"larger than {INPUT_BYTES_MAX} bytes" in error
