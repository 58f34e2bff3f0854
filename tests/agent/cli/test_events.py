"""`oncegate events`: selected, followed, and in the form for people or programs."""

import json
import signal
import subprocess
from fnmatch import fnmatchcase
from threading import Thread

import pytest

from agent.store.read import documents
from contract.timestamp import rfc3339
from tests.agent.cli.running import Run, RunningAgent
from tests.support.waiting import wait_until


def test_events_are_selected_by_device_and_the_latest_of_these_are_shown(running_agent: RunningAgent) -> None:
    running_agent.post("urn:selected:a", 1, 2, 3)
    running_agent.post("urn:selected:b", 4)
    assert [event["id"] for event in running_agent.shown("events", "--device", "urn:selected:?")] == [1, 2, 3, 4]
    assert [event["id"] for event in running_agent.shown("events", "--device", "urn:selected:a", "--limit", "2")] == [
        2,
        3,
    ]
    assert running_agent.shown("events", "--device", "selected") == []


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
    "pattern", ["urn:rare:[x]", "urn:r*:[[]x[]]", "*rare*", "urn:rare:\u00e9", 'urn:rare:"q"', "urn:rare:?", "*"]
)
def test_a_pattern_finds_what_it_would_without_the_search_for_its_letters(
    running_agent: RunningAgent, pattern: str
) -> None:
    devices = ["urn:rare:[x]", "urn:rare:x", "urn:rare:\u00e9", 'urn:rare:"q"', "urn:other"]
    for device in devices:
        running_agent.post(device, 1)
    found = {event["device"] for event in running_agent.shown("events", "--device", pattern, "--limit", "1000")}
    assert found & {*devices} == {device for device in devices if fnmatchcase(device, pattern)}
    assert found & {*devices}


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


def test_a_terminal_gets_a_table_and_a_pipe_gets_json(running_agent: RunningAgent) -> None:
    running_agent.post("urn:table", 1)
    words = ("events", "--device", "urn:table")
    heads = [
        running_agent.on_terminal(*words),
        running_agent.on_terminal(*words, "--json"),
        running_agent.oncegate(*words, "--table").stdout,
        running_agent.oncegate(*words).stdout,
    ]
    assert [text.split()[0] for text in heads] == ["accepted", '{"fingerprint":', "accepted", '{"fingerprint":']
    assert heads[0].split()[5:] == ["new", "urn:table", "id", "1:", "value", "1", "Cel"]
    assert running_agent.oncegate(*words, "--table", "--json").returncode == 2
