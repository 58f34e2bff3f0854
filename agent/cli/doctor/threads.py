"""Checks the number of threads: Kafka's client library runs one for each broker and client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from agent.cli.doctor.finding import Finding, fine, wrong

SERVICE_TASKS: Final = Path("/sys/fs/cgroup/system.slice/oncegate.service/pids.max")
CLIENTS_MAX: Final = 5
"""The producer, one client each for the topic and the records of a transaction, and two for the receipts."""
CLIENT_TASKS: Final = 5
"""Threads of one client besides its brokers': main, callbacks, bootstrap and coordinators."""
LANE_TASKS: Final = 4
"""Threads of a lane beside the default one and its clients: writer, forwarder, receipts, an abandoned call."""
AGENT_TASKS: Final = 24
"""All other threads: loop, writer, workers, abandoned calls into a client."""


def tasks_max(brokers: int, lanes: int = 0) -> int:
    """Return the maximum number of the agent's threads with this number of brokers, and of lanes beside the default."""
    clients = CLIENTS_MAX * (brokers + CLIENT_TASKS)
    return (1 + lanes) * clients + lanes * LANE_TASKS + AGENT_TASKS


def check_threads(brokers: int, lanes: int = 0, limit_file: Path = SERVICE_TASKS) -> Iterator[Finding]:
    """Check the service's limit of threads; yield nothing where it has none."""
    try:
        limit = limit_file.read_text().strip()
    except OSError:  # the service does not run, or the machine has no unified cgroups
        return
    if not limit.isdigit():
        return
    needed = tasks_max(brokers, lanes)
    of_lanes = f" and {1 + lanes} lanes" if lanes else ""
    text = f"{brokers} brokers{of_lanes}: up to {needed} threads of TasksMax={limit}"
    if needed > int(limit):
        hint = f"raise it: systemctl edit oncegate, [Service], TasksMax={2 * needed}"
        yield wrong("threads", f"{text}: without threads the Kafka client aborts the agent", hint)
    else:
        yield fine("threads", text)
