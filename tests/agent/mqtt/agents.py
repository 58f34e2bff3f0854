"""The agent as a real process that receives from a broker, without Kafka, and the events in its store."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.status import read_status
from agent.store.layout import FILE_NAME
from simulators.services.process import Process
from tests.agent.store.stores import rows
from tests.support.agent_process import agent_process, configured, stored_documents


@contextmanager
def agent(folder: Path, port: int, more: str = "") -> Iterator[Process]:
    """Create an agent that receives from the broker at this port; the test starts it."""
    section = f'[mqtt]\nenabled = true\nhost = "127.0.0.1"\nport = {port}\n'
    with agent_process(configured(folder, section + more, coap="")) as process:
        yield process


def accepted(folder: Path) -> int:
    """Count the events of devices in the store."""
    return read_status(folder / "state", "gw1").accepted if (folder / "state" / FILE_NAME).exists() else 0


def stored(folder: Path) -> list[dict[str, object]]:
    """Return the events of devices in the store, in their order, as in the Kafka record."""
    return [document for document in stored_documents(folder / "state" / FILE_NAME) if document["via"] != "gateway"]


def rejected(folder: Path) -> list[tuple[str, str, bytes]]:
    """Return device, reason and bytes of the rejected events."""
    return rows(folder / "state", "SELECT device, reason, raw FROM rejected ORDER BY number")
