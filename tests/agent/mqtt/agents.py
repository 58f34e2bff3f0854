"""The agent as a real process that receives from a broker, without Kafka, and the events in its store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.status import read_status
from agent.store.layout import FILE_NAME
from agent.store.read.events import read_packed
from agent.store.schema import database
from simulators.services.process import Process
from tests.support.agent_process import agent_process


@contextmanager
def agent(folder: Path, port: int, more: str = "") -> Iterator[Process]:
    """Create an agent that receives from the broker at this port; the test starts it."""
    file = folder / "oncegate.toml"
    file.write_text(
        f'[gateway]\nid = "gw1"\nstate_dir = "{folder / "state"}"\n[coap]\nenabled = false\n'
        f'[http]\nbind = "127.0.0.1:0"\n[kafka]\nbootstrap_servers = "127.0.0.1:1"\n'
        f'[mqtt]\nenabled = true\nhost = "127.0.0.1"\nport = {port}\n{more}'
    )
    with agent_process(file) as process:
        yield process


def accepted(folder: Path) -> int:
    """Count the events of devices in the store."""
    return read_status(folder / "state", "gw1").accepted if (folder / "state" / FILE_NAME).exists() else 0


def stored(folder: Path) -> list[dict[str, object]]:
    """Return the events of devices in the store, in their order, as in the Kafka record."""
    connection = database.open_for_reading(folder / "state" / FILE_NAME)
    try:
        bodies = [json.loads(b"{" + event.tail + b"}") for event in read_packed(connection, 1, 1 << 40)]
    finally:
        connection.close()
    return [body for body in bodies if body["via"] != "gateway"]


def rejected(folder: Path) -> list[tuple[str, str, bytes]]:
    """Return device, reason and bytes of the rejected events."""
    connection = database.open_for_reading(folder / "state" / FILE_NAME)
    try:
        return list(connection.execute("SELECT device, reason, raw FROM rejected ORDER BY number"))
    finally:
        connection.close()
