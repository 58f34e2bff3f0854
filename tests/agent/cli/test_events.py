"""`oncegate events` and `rejected`: selected, followed, in a form for people or programs; all duplicates count."""

import json
import re
import signal
import socket
import subprocess
from contextlib import closing
from fnmatch import fnmatchcase
from threading import Thread

import pytest

from agent.store.read import documents
from contract.event import Event
from contract.fingerprint import fingerprint
from contract.timestamp import rfc3339
from tests.agent.cli.running import Run, RunningAgent
from tests.support.waiting import wait_until


def test_events_are_selected_by_the_time_of_their_acceptance(running_agent: RunningAgent) -> None:
    running_agent.post("urn:since", *range(1, 23))
    events = running_agent.shown("events", "--device", "urn:since", "--since", "1h")
    assert [event["id"] for event in events] == list(range(1, 23))  # more than the default of --limit
    moment = events[10]["received"]
    later = running_agent.shown("events", "--device", "urn:since", "--since", str(moment))
    assert later == [event for event in events if event["received"] >= moment]
    assert running_agent.shown("events", "--device", "urn:since", "--since", "2999-01-01") == []
    (last,) = running_agent.shown("events", "--device", "urn:since", "--since", "1h", "--limit", "1")
    assert last["id"] == 22


@pytest.mark.parametrize(
    "pattern",
    ["urn:rare:[x]", "urn:r*:[[]x[]]", "*rare*", "urn:rare:\u00e9", 'urn:rare:"q"', "urn:rare:?", "*", "rare"],
)
def test_a_pattern_finds_what_it_would_without_the_search_for_its_letters(
    running_agent: RunningAgent, pattern: str
) -> None:
    devices = ["urn:rare:[x]", "urn:rare:x", "urn:rare:\u00e9", 'urn:rare:"q"', "urn:other"]
    for device in devices:
        running_agent.post(device, 1)
    found = {event["device"] for event in running_agent.shown("events", "--device", pattern, "--limit", "1000")}
    assert found & {*devices} == {device for device in devices if fnmatchcase(device, pattern)}


def test_a_search_is_bounded_and_what_was_searched_is_printed(
    running_agent: RunningAgent, oncegate: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def searched(*words: str) -> tuple[list[int], str]:
        words = ("--config", str(running_agent.configuration), "events", "--device", "urn:far", *words)
        status, printed, said = oncegate(*words)
        assert status == 0, said
        return [json.loads(line)["id"] for line in printed.splitlines()], said

    running_agent.post("urn:far", 1)
    running_agent.post("urn:between", 1, 2, 3, 4)
    running_agent.post("urn:far", 2)
    assert searched() == ([1, 2], "")
    monkeypatch.setattr(documents, "EVENTS_SEARCHED_MAX", 5)
    (first, *_) = running_agent.shown("events", "--device", "urn:between")
    expected = f"searched the latest 5 events, accepted since {rfc3339(first['received'])}; --since TIME"
    for words in ((), ("--limit", "2"), ("--since", "1h", "--limit", "2")):
        found, said = searched(*words)
        assert (found, expected in said) == ([2], True), said
    assert searched("--limit", "1") == ([2], "")
    assert searched("--since", "1h") == ([1, 2], "")


@pytest.mark.usefixtures("interruptible")
def test_new_events_are_followed_each_once_until_the_interrupt(running_agent: RunningAgent) -> None:
    running_agent.post("urn:followed", 1)
    command = running_agent.command("events", "--follow", "--device", "urn:followed", "--limit", "5")
    ids: list[int] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        output = process.stdout

        def read() -> None:
            ids.extend(json.loads(line)["id"] for line in output)

        reader = Thread(target=read)
        reader.start()
        wait_until(lambda: ids == [1], "the event from before is shown")
        running_agent.post("urn:followed", 2)
        running_agent.post("urn:other", 9)
        wait_until(lambda: ids == [1, 2], "a new event is shown")
        running_agent.post("urn:followed", 3, 2)
        wait_until(lambda: len(ids) > 2, "another event is shown")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        reader.join()
    assert ids == [1, 2, 3]


def test_a_terminal_gets_a_table_and_a_pipe_gets_json(
    running_agent: RunningAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    running_agent.post("urn:table", 1)
    words = ("events", "--device", "urn:table")
    heads = [
        running_agent.oncegate(*words, terminal=True).stdout,
        running_agent.oncegate(*words, "--json", terminal=True).stdout,
        running_agent.oncegate(*words, "--table").stdout,
        running_agent.oncegate(*words).stdout,
    ]
    assert [text.split()[0] for text in heads] == ["accepted", '{"fingerprint":', "accepted", '{"fingerprint":']
    assert heads[0].split()[5:] == ["new", "urn:table", "id", "1:", "value", "1", "Cel"]
    assert running_agent.oncegate(*words, "--table", "--json").returncode == 2


DEVICE = "urn:duplicates"


def duplicates(agent: RunningAgent) -> int:
    (status,) = agent.shown("status")
    return int(status["duplicates"])


@pytest.mark.guarantee(2)
def test_commands_show_duplicates_the_moment_they_are_acked(running_agent: RunningAgent) -> None:
    found = fingerprint(Event(DEVICE, id=1, data={"value": 1})).hex()
    running_agent.post(DEVICE, 1)
    before = duplicates(running_agent)
    for repeated in (1, 2):
        running_agent.post(DEVICE, 1)
        listed = running_agent.shown("events", "--duplicates", "--limit", "1000")
        assert sum(one["fingerprint"] == found for one in listed) == repeated
        assert duplicates(running_agent) == before + repeated
    running_agent.post(DEVICE, 1)
    (trace,) = running_agent.shown("trace", found)
    assert len(trace["duplicates"]) == 3


@pytest.mark.guarantee(2)
def test_the_status_counts_what_coap_answers_from_its_memory(running_agent: RunningAgent) -> None:
    running_agent.post(DEVICE, 2)
    before = duplicates(running_agent)
    body = json.dumps({"device": DEVICE, "id": 3, "data": {"value": 1}}).encode()
    datagram = b"\x40\x02\x12\x34" + b"\xb6events" + b"\x11\x32" + b"\xff" + body
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as sensor:
        sensor.settimeout(10)
        sensor.connect(("127.0.0.1", running_agent.coap_port))
        for _ in range(3):
            sensor.send(datagram)
            assert sensor.recv(100)[1] == 0x44  # 2.04 Changed
    assert duplicates(running_agent) == before + 2


def test_the_status_of_a_running_agent_has_its_page_links_and_rates_or_the_reason_why_not(
    running_agent: RunningAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = running_agent.api
    wait_until(lambda: bool(api.get("/api/v1/history").document["accepted"]), "the history has a point")
    shown = " ".join(running_agent.oncegate("status").stdout.split())
    assert re.search(rf" status page {api.url}/ link kafka unreachable for \d+ .*: \S+", shown)
    assert re.search(r" last minute \d+\.\d events accepted a second, 0\.0 sent, 0\.0 confirmed ", shown)
    monkeypatch.setenv("ONCEGATE_HTTP__BIND", "127.0.0.1:1")
    shown = running_agent.oncegate("status").stdout
    assert "http://127.0.0.1:1: Connection refused" in shown
    assert "accepted " in shown


INVALID = b'{"device":"urn:rejected:1","id":1,"data":{"x":"\xe9"},"colour":1}'.replace(b"\xe9", "é".encode())
DENIED = b'{"device":"urn:denied:2","id":1}'


@pytest.fixture(scope="module")
def numbers(running_agent: RunningAgent) -> list[int]:
    """Have two events rejected; return their numbers."""
    api = running_agent.api
    body = b'[{"device":"urn:valid","id":1},' + INVALID + b"," + DENIED + b"]"
    assert api.post("/api/v1/events", body, "application/json").document["rejected"] == 2
    listed = api.get("/api/v1/rejected?limit=2").document
    return [one["number"] for one in reversed(listed)]


def test_they_are_listed_in_order_with_reason_and_bytes_and_selected(
    running_agent: RunningAgent, numbers: list[int]
) -> None:
    done = running_agent.oncegate("rejected", "--limit", "2")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(one["number"], one["via"], bytes.fromhex(one["raw"])) for one in found] == [
        (numbers[0], "http", INVALID),
        (numbers[1], "http", b""),
    ]
    assert found[0]["reason"] == "unknown field 'colour'"
    table = running_agent.oncegate("rejected", "--limit", "2", "--table").stdout.splitlines()
    assert table[0].split() == ["number", "received", "via", "device", "reason", "and", "beginning"]
    assert """unknown field 'colour': {"device":"urn:rejected: …""" in table[1]
    assert "is not allowed ([devices] allow, deny)" in table[2]
    for words, chosen in (
        (("--reason", "COLOUR"), numbers[:1]),
        (("--device", "urn:denied:*"), numbers[1:]),
        (("--via", "http"), numbers),
        (("--via", "mqtt"), []),
    ):
        selected = [one["number"] for one in running_agent.shown("rejected", *words)]
        assert [number for number in selected if number in numbers] == chosen  # other tests have had events rejected
    assert ", 'zigbee2mqtt'" in running_agent.oncegate("rejected", "--via", "").stderr


def test_the_bytes_of_one_can_be_read_again_by_the_gateway(running_agent: RunningAgent, numbers: list[int]) -> None:
    (rejected,) = running_agent.shown("rejected", "--number", str(numbers[0]))
    done = running_agent.oncegate("decode", "--hex", text=rejected["raw"] + "\n")
    assert (done.returncode, "unknown field 'colour'" in done.stdout) == (1, True)
    missing = running_agent.oncegate("rejected", "--number", "999999")
    assert (missing.returncode, "no such rejected event" in missing.stderr) == (1, True)
