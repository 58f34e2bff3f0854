"""The agent as a process that a test starts and that is killed at its end: its configuration, addresses and events."""

import http.client
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from agent.store.read.events import read_packed
from agent.store.schema import database
from simulators.services.process import Command, Process

_NOWHERE = "127.0.0.1:1"
ANSWER_SECONDS_MAX = 60


def configured(
    folder: Path,
    more: str = "",
    *,
    gateway: str = "gw1",
    coap: str = "[::1]:0",
    http: str = "127.0.0.1:0",
    kafka: str = _NOWHERE,
    state: Path | str = "",
) -> Path:
    """Write a configuration with its state beside it or in another folder, and return the file.

    A way in with an empty address is switched off; `more` begins in the section of Kafka.
    """
    file = folder / "oncegate.toml"
    ways = (("coap", coap), ("http", http))
    sections = (f"[{name}]\n" + (f'bind = "{bind}"\n' if bind else "enabled = false\n") for name, bind in ways)
    file.write_text(
        f'[gateway]\nid = "{gateway}"\nstate_dir = "{state or folder / "state"}"\n{"".join(sections)}'
        f'[kafka]\nbootstrap_servers = "{kafka}"\n{more}'
    )
    return file


@contextmanager
def agent_process(
    configuration: Path, environment: Mapping[str, str] | None = None, release: Path | None = None
) -> Iterator[Process]:
    """Yield an agent that is not started yet; its log is beside the configuration file.

    `release` is the folder of another release's sources.
    """
    command = (sys.executable, "-m", "agent.cli.main", "run", "--config", str(configuration))
    process = Process(Command("agent", command, configuration.parent / "agent.log", release, environment or {}))
    try:
        yield process
    finally:
        process.kill()


def wait_until_ready(agent: Process) -> dict[str, int]:
    """Wait until the agent serves, and return the ports of its ways in by their names."""
    agent.wait_for_log("agent=ready")
    ready = agent.log().rpartition("agent=ready")[2].partition("\n")[0]
    return {name: int(port) for name, port in re.findall(r"(\w+)=\S*:(\d+)\b", ready)}


def ask(port: int, method: str, path: str, body: str | bytes | None = None, token: str = "") -> tuple[int, bytes]:
    """Send a request over HTTP; return the status code and the body of the answer."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS_MAX)) as connection:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()


def post(port: int, *events: Mapping[str, object], token: str = "") -> int:
    """Post a pack of events over HTTP; return the status code."""
    return ask(port, "POST", "/api/v1/events", json.dumps(events), token)[0]


def post_events(agent: Process, numbers: Iterable[int]) -> None:
    """Post a pack of events with these ids over HTTP; assert that all of them are new."""
    pack = [{"device": "urn:dev:mac:0000000000000001", "id": number, "data": {}} for number in numbers]
    _, answer = ask(wait_until_ready(agent)["http"], "POST", "/api/v1/events", json.dumps(pack))
    assert json.loads(answer)["accepted"] == len(pack)


def stored_documents(store: Path) -> list[dict[str, Any]]:
    """Return what a store has of its events, in their order, as in the Kafka record."""
    with closing(database.open_for_reading(store)) as connection:
        return [json.loads(b"{" + event.tail + b"}") for event in read_packed(connection, 1, 1 << 40)]
