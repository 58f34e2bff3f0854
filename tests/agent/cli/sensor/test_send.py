"""`oncegate send` against a running agent."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from agent.cli import commands
from agent.cli.sensor import send as send_command
from tests.agent.cli.running import RunningAgent


def send(agent: RunningAgent, *words: str) -> tuple[int, list[dict[str, Any]]]:
    done = agent.oncegate("send", "--json", *words)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def test_an_event_is_accepted_once_and_its_copies_are_duplicates(running_agent: RunningAgent) -> None:
    words = ("temperature=21.5", "--device", "urn:dev:mac:00158d0001a2b3c4", "--id", "17")
    status, results = send(running_agent, *words, "--repeat", "3")
    assert (status, [one["outcome"] for one in results]) == (0, ["accepted", "duplicate", "duplicate"])
    assert {(one["code"], one["transmissions"]) for one in results} == {("2.04", 1)}
    assert {one["fingerprint"] for one in results} == {"1876d2e5f34f91105e52555b000b5edc"}
    over_http = ("--format", "cbor", "--http", f"http://127.0.0.1:{running_agent.http_port}")
    status, (other_form,) = send(running_agent, *words, *over_http)
    assert (status, other_form["outcome"], other_form["code"]) == (0, "duplicate", "200")


def test_every_field_reaches_the_gateway_as_it_was_meant(running_agent: RunningAgent) -> None:
    words = (
        *("a=1", "open=true", "text=x y", 'digits="5"', "nan=NaN", 'nested={"x":[1,null]}', "empty="),
        *("--device", "urn:fields", "--id", "007", "--boot", "3", "--type", "alarm"),
        *("--time", "2026-01-01T00:00:00Z", "--unit", "a=Cel", "--coap", f"127.0.0.1:{running_agent.coap_port}"),
    )
    assert send(running_agent, *words)[0] == 0
    (event,) = running_agent.shown("events", "--device", "urn:fields")
    assert (event["id"], event["boot"], event["type"], event["time"]) == ("007", 3, "alarm", 1_767_225_600_000)
    assert (event["via"], event["units"]) == ("coap", {"a": "Cel"})
    assert event["data"] == {
        "a": 1,
        "open": True,
        "text": "x y",
        "digits": "5",
        "nan": "NaN",
        "empty": "",
        "nested": {"x": [1, None]},
    }


def test_without_id_and_time_each_request_is_an_event_and_that_is_said(running_agent: RunningAgent) -> None:
    done = running_agent.oncegate("send", "a=1", "--device", "urn:ambiguous", "--repeat", "2")
    assert done.returncode == 0
    assert "each request is an event of its own" in done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["accepted", "accepted"]


@pytest.mark.parametrize("over_http", [False, True])
@pytest.mark.parametrize(
    ("device", "codes", "reason"),
    [
        ("urn:oncegate:x", ("4.00", "400"), "devices urn:oncegate:* are the gateways themselves"),
        ("urn:denied:x", ("4.03", "403"), "is not allowed"),
    ],
)
def test_a_refusal_has_its_reason(
    device: str, codes: tuple[str, str], reason: str, over_http: bool, running_agent: RunningAgent
) -> None:
    target = ("--http", f"http://127.0.0.1:{running_agent.http_port}") if over_http else ()
    status, (result,) = send(running_agent, "a=1", "--device", device, "--id", "1", *target)
    assert (status, result["outcome"], result["code"]) == (1, "refused", codes[over_http])
    assert reason in result["reason"]
    shown = running_agent.oncegate("send", "a=1", "--device", device, "--id", "1", *target)
    assert (shown.returncode, reason in shown.stdout) == (1, True)


@pytest.mark.parametrize("protected", [False, True])
def test_a_request_beyond_the_largest_datagram_is_an_error_at_once(
    protected: bool, running_agent: RunningAgent, tmp_path: Path
) -> None:
    words = [f"text={'x' * 80_000}", "--device", "urn:large", "--id", "1"]
    if protected:
        file = tmp_path / "sensor.json"
        file.touch(0o600)
        sides = {"sender-id_hex": "01", "recipient-id_hex": ""}
        file.write_text(json.dumps({"secret_hex": "00" * 16, "salt_hex": "00" * 8, **sides}))
        words += ["--credentials", str(file)]
    done = running_agent.oncegate("send", *words)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(
        r"oncegate: the request has 80,\d{3} bytes, more than a UDP datagram carries \(65,507\); .*--http.*\n",
        done.stderr,
    )


def test_wrong_words_are_wrong_usage(running_agent: RunningAgent) -> None:
    for words, message in (
        (("temperature", "--device", "x"), "expected NAME=VALUE"),
        (("a=1", "a=2", "--device", "x"), "oncegate: 'a' occurs twice"),
        (("a=1",), "required: --device"),
        (("a=1", "--device", "x", "--time", "soon"), "expected milliseconds since 1970, or a time such as"),
        (("a=1", "--device", "x", "--repeat", "0"), "expected a whole number, 1 or more; found '0'"),
        (("a=1", "--device", "x", "--coap", "http://x"), "expected HOST[:PORT]"),
        (("a=1", "--device", "x", "--http", "gateway"), "expected a URL such as http://127.0.0.1:8580"),
        (("a=1", "--device", "x", "--http", "http://x", "--token-file", "/none"), "/none: No such file"),
    ):
        done = running_agent.oncegate("send", *words)
        assert (done.returncode, message in done.stderr) == (2, True), done.stderr


def test_a_gateway_that_is_not_there_is_unanswered(running_agent: RunningAgent) -> None:
    words = ("a=1", "--device", "x", "--id", "1", "--retransmits", "0", "--http", "http://127.0.0.1:1")
    status, (result,) = send(running_agent, *words)
    assert (status, result["outcome"], result["transmissions"]) == (1, "unanswered", 1)
    assert "Connection refused" in result["reason"]


def test_readings_may_stand_on_both_sides_of_the_options() -> None:
    arguments = commands.parse(["send", "a=1", "--device", "x", "b=two", "--id", "0"])
    assert send_command.event_of(arguments) == {"device": "x", "id": 0, "data": {"a": 1, "b": "two"}}
