"""`oncegate events`: selected, followed, and in the form for people or programs."""

import json
import signal
import subprocess
from contextlib import closing
from fnmatch import fnmatchcase
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from agent.cli.api import Api
from agent.store.read import documents, kept
from contract.timestamp import rfc3339
from tests.agent.cli.running import Run, RunningAgent
from tests.support.waiting import wait_until

SECOND = 1_000


def post(agent: RunningAgent, device: str, *ids: int) -> None:
    api = Api(f"http://127.0.0.1:{agent.http_port}")
    for number in ids:
        event = {"device": device, "id": number, "data": {"value": 1}, "units": {"value": "Cel"}}
        assert api.post("/api/v1/events", json.dumps(event).encode(), "application/json").code == 200


def listed(agent: RunningAgent, *words: str) -> list[dict[str, Any]]:
    done = agent.oncegate("events", *words)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_events_are_selected_by_device_and_the_latest_of_these_are_shown(running_agent: RunningAgent) -> None:
    post(running_agent, "urn:selected:a", 1, 2, 3)
    post(running_agent, "urn:selected:b", 4)
    assert [event["id"] for event in listed(running_agent, "--device", "urn:selected:?")] == [1, 2, 3, 4]
    assert [event["id"] for event in listed(running_agent, "--device", "urn:selected:a", "--limit", "2")] == [2, 3]
    assert listed(running_agent, "--device", "selected") == []


def test_events_are_selected_by_the_time_of_their_acceptance(running_agent: RunningAgent) -> None:
    post(running_agent, "urn:since", *range(1, 23))
    events = listed(running_agent, "--device", "urn:since", "--since", "1h")
    assert [event["id"] for event in events] == list(range(1, 23))  # more than the default of --limit
    moment = events[10]["received"]
    later = listed(running_agent, "--device", "urn:since", "--since", str(moment))
    assert later == [event for event in events if event["received"] >= moment]
    assert listed(running_agent, "--device", "urn:since", "--since", "2999-01-01") == []
    (last,) = listed(running_agent, "--device", "urn:since", "--since", "1h", "--limit", "1")
    assert last["id"] == 22


def test_a_selection_reads_back_over_as_many_pages_as_it_needs(
    running_agent: RunningAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agent.store.layout import FILE_NAME
    from agent.store.read import selection
    from agent.store.schema import database, tables

    post(running_agent, "urn:pages:x", 1)
    post(running_agent, "urn:pages:y", *range(1, 6))
    post(running_agent, "urn:pages:x", 2)
    for module in (kept, selection):
        monkeypatch.setattr(module, "PAGE_POSITIONS", 2)
    wanted = selection.Selection("urn:pages:x")
    with closing(database.open_for_reading(running_agent.configuration.parent / "state" / FILE_NAME)) as store:
        last = tables.last_position(store)
        found = [
            [entry.event.position for entry in selection.select_latest(store, last, limit, wanted)]  # type: ignore[union-attr]
            for limit in (1, 2, 9)
        ]
    assert found[1:] == [[last - 6, last]] * 2
    assert found[0] == [last]


@pytest.mark.parametrize(
    "pattern", ["urn:rare:[x]", "urn:r*:[[]x[]]", "*rare*", "urn:rare:\u00e9", 'urn:rare:"q"', "urn:rare:?", "*"]
)
def test_a_pattern_finds_what_it_would_without_the_search_for_its_letters(
    running_agent: RunningAgent, pattern: str
) -> None:
    devices = ["urn:rare:[x]", "urn:rare:x", "urn:rare:\u00e9", 'urn:rare:"q"', "urn:other"]
    for device in devices:
        post(running_agent, device, 1)
    found = {event["device"] for event in listed(running_agent, "--device", pattern, "--limit", "1000")}
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

    post(running_agent, "urn:far", 1)
    post(running_agent, "urn:between", 1, 2, 3, 4)
    post(running_agent, "urn:far", 2)
    assert searched() == ([1, 2], "")
    monkeypatch.setattr(documents, "EVENTS_SEARCHED_MAX", 5)
    (first, *_) = listed(running_agent, "--device", "urn:between")
    expected = f"searched the latest 5 events, accepted since {rfc3339(first['received'])}; --since TIME"
    for words in ((), ("--limit", "2"), ("--since", "1h", "--limit", "2")):
        found, said = searched(*words)
        assert (found, expected in said) == ([2], True), said
    assert searched("--limit", "1") == ([2], "")
    assert searched("--since", "1h") == ([1, 2], "")


@pytest.mark.usefixtures("interruptible")
def test_new_events_are_followed_each_once_until_the_interrupt(running_agent: RunningAgent) -> None:
    post(running_agent, "urn:followed", 1)
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
        post(running_agent, "urn:followed", 2)
        post(running_agent, "urn:other", 9)
        wait_until(lambda: ids == [1, 2], "a new event is shown")
        post(running_agent, "urn:followed", 3, 2)
        wait_until(lambda: len(ids) > 2, "another event is shown")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        reader.join()
    assert ids == [1, 2, 3]


def test_a_terminal_gets_a_table_and_a_pipe_gets_json(running_agent: RunningAgent) -> None:
    post(running_agent, "urn:table", 1)
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


def test_a_damaged_event_is_shown_whatever_is_selected(tmp_path: Path) -> None:
    from agent.cli.store.events import _event_row

    damaged = {"state": "damaged", "epoch": "ab", "first": 3, "last": 4}
    assert _event_row(damaged)[0][1:] == ("damaged", "", "epoch ab, sequence 3 to 4: see oncegate verify")
