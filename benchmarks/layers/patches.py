"""Patches that remove the dedup of the agent or of the job; called in their processes (simulators/launch.py)."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def agent_without_dedup() -> None:
    """Disable the agent's dedup: by CoAP's retransmission rules and by stored fingerprints."""
    _replace("agent.coap.exchange", "ResponseCache", "get", lambda *_: None)
    _replace("agent.store.fingerprints.transient", "RetransmissionKeys", "position", lambda *_: None)
    _replace("agent.store.fingerprints.index", "FingerprintIndex", "position", lambda *_: None)


def job_without_dedup() -> None:
    """Disable the job's dedup: by state and by look-up."""
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
