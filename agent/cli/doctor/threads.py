"""Threads: Kafka's client library runs one for each broker and client, and the service may have only so many."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from agent.cli.doctor.finding import Finding, fine, wrong

SERVICE_TASKS: Final = Path("/sys/fs/cgroup/system.slice/oncegate.service/pids.max")
CLIENTS_MAX: Final = 5
"""The producer, and for the topic, for a transaction's recovery and for the receipts a client or two each."""
CLIENT_TASKS: Final = 5
"""Of one client beside its brokers': its main thread, one for callbacks, those for bootstrap and coordinators."""
AGENT_TASKS: Final = 24
"""Of all the rest: loop, writer, workers, calls into a client that are left behind."""


def tasks_max(brokers: int) -> int:
    """Return how many threads the agent has at most, in a cluster of so many brokers."""
    return CLIENTS_MAX * (brokers + CLIENT_TASKS) + AGENT_TASKS


def check_threads(brokers: int, limit_file: Path = SERVICE_TASKS) -> Iterator[Finding]:
    """Compare the threads that a cluster needs with what the service may have; nothing where it has no bound."""
    try:
        limit = limit_file.read_text().strip()
    except OSError:  # it does not run, or another way of counting is in use
        return
    if not limit.isdigit():
        return
    needed = tasks_max(brokers)
    text = f"{brokers} brokers: up to {needed} threads of TasksMax={limit}"
    if needed > int(limit):
        hint = f"raise it: systemctl edit oncegate, [Service], TasksMax={2 * needed}"
        yield wrong("threads", f"{text}: without threads the client of Kafka ends the agent", hint)
    else:
        yield fine("threads", text)
