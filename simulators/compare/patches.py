"""Take the dedup out of the agent, or out of the job; called in their own processes (simulators/launch.py)."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def agent_without_dedup() -> None:
    """Make the agent recognise nothing: neither what CoAP proves to be a retransmission, nor what it has on disk."""
    _replace("agent.coap.response_cache", "Memory", "recall", lambda *_: None)
    _replace("agent.store.fingerprints.transient", "RetransmissionKeys", "position", lambda *_: None)
    _replace("agent.store.fingerprints.index", "FingerprintIndex", "position", lambda *_: None)


def job_without_dedup() -> None:
    """Make the job write every record that comes: no state, no look-up."""
    job: Any = import_module("cloud.job")
    job.drop_duplicates = lambda records, *_: records
    lookup: Any = import_module("cloud.table.lookup")
    lookup.without_found = lambda survivors, _found: survivors
    reuse: Any = import_module("cloud.table.id_reuse")
    reuse.first_of_each = lambda good: good


def _replace(module: str, owner: str, method: str, function: Any) -> None:
    kind = getattr(import_module(module), owner)
    if not callable(getattr(kind, method, None)):
        raise AttributeError(f"{module}.{owner} has no {method} any more: this patch is out of date")
    setattr(kind, method, function)
