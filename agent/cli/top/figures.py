"""The figures of the live view: the differences between two samples of the agent."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent.cli.api import Api, ApiError

_ACCEPTED = "oncegate_events_accepted_total"
_Sample = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample of the agent."""

    at: float
    """By the monotonic clock, in seconds."""
    live: Mapping[str, Any]
    metrics: Mapping[_Sample, float]

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of a metric over all labels that are not named."""
        wanted = set(labels.items())
        return sum(value for (found, pairs), value in self.metrics.items() if found == name and wanted <= set(pairs))

    def vias(self) -> list[str]:
        """Return the protocols of the ways in."""
        return sorted(dict(pairs)["via"] for found, pairs in self.metrics if found == _ACCEPTED)


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one interval; rates are per second."""

    gateway: str
    version: str
    form: str
    now: int
    """The gateway's clock, in milliseconds since 1970 UTC."""
    uptime_seconds: float
    clock: str
    trouble: str
    accepted: float
    accepted_by_via: Mapping[str, float]
    duplicates: float
    rejected: float
    refused: float
    sent: float
    confirmed: float
    new: int
    forwarded: int
    oldest_seconds: float
    """How long the oldest event has waited for the table."""
    commits: float
    commit_seconds_mean: float | None
    """From the beginning of a transaction until it is on disk, which an ack waits for; None without a commit."""
    commit_seconds_95: float | None
    """The bucket that 95 % of the commits are in."""
    store_bytes: int
    store_bytes_max: int
    log_bytes: int
    written_bytes: int
    memory_bytes: int
    cpu_share: float
    links: Mapping[str, Mapping[str, Any]]
    devices: Sequence[Mapping[str, Any]] = field(default=())
    feed: Sequence[Mapping[str, Any]] = field(default=())


def sample(api: Api) -> Sample:
    """Request a sample from the agent; raise ApiError."""
    from prometheus_client.parser import text_string_to_metric_families

    live = api.get("/api/v1/live?after=0").document
    text = api.get("/metrics").body.decode()
    if not isinstance(live, dict) or "feed" not in live:
        raise ApiError(f"{api.url}: not an Oncegate agent")
    metrics = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    return Sample(time.monotonic(), live, metrics)


def between(before: Sample, after: Sample) -> Figures:
    """Return the figures of the interval between two samples; after a restart of the agent the rates are 0."""
    seconds = max(after.at - before.at, 0.001)

    def rate(name: str, **labels: str) -> float:
        return (
            max(0.0, after.total(f"oncegate_{name}", **labels) - before.total(f"oncegate_{name}", **labels)) / seconds
        )

    def growth(state: str) -> float:
        name = "oncegate_outbox_events"
        return (after.total(name, state=state) - before.total(name, state=state)) / seconds

    accepted = rate("events_accepted_total")
    sent = max(0.0, accepted - growth("new"))
    commits = rate("commit_seconds_count")
    status = after.live["status"]
    oldest = status["oldest_unprocessed"]
    return Figures(
        gateway=status["gateway"],
        version=after.live["version"],
        form=after.live["form"],
        now=after.live["now"],
        uptime_seconds=(after.live["now"] - after.live["started"]) / 1000,
        clock=after.live["clock"],
        trouble=after.live["trouble"],
        accepted=accepted,
        accepted_by_via={via: rate("events_accepted_total", via=via) for via in after.vias()},
        duplicates=rate("events_duplicates_total"),
        rejected=rate("events_rejected_total"),
        refused=rate("deliveries_refused_total"),
        sent=sent,
        confirmed=max(0.0, sent - growth("forwarded")),
        new=int(after.total("oncegate_outbox_events", state="new")),
        forwarded=int(after.total("oncegate_outbox_events", state="forwarded")),
        oldest_seconds=0.0 if oldest is None else max(0.0, (after.live["now"] - oldest) / 1000),
        commits=commits,
        commit_seconds_mean=rate("commit_seconds_sum") / commits if commits else None,
        commit_seconds_95=_bucket(before, after, 0.95) if commits else None,
        store_bytes=int(after.total("oncegate_store_bytes")),
        store_bytes_max=int(after.total("oncegate_store_max_bytes")),
        log_bytes=int(after.total("oncegate_store_log_bytes")),
        written_bytes=int(after.total("oncegate_bytes_written_total")),
        memory_bytes=int(after.total("oncegate_process_resident_memory_bytes")),
        cpu_share=rate("process_cpu_seconds_total"),
        links=after.live["links"],
        devices=after.live["devices"],
        feed=after.live["feed"],
    )


def _bucket(before: Sample, after: Sample, share: float) -> float:
    """Return the upper bound of the bucket that holds this share of the interval's commits."""
    name = "oncegate_commit_seconds_bucket"
    counts = sorted(
        (float(dict(labels)["le"]), value - before.metrics.get((found, labels), 0.0))
        for (found, labels), value in after.metrics.items()
        if found == name
    )
    wanted = share * counts[-1][1]
    return next(bound for bound, count in counts if count >= wanted)
