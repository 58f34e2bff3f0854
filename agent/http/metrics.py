"""The agent's metrics in Prometheus' format, collected on request, before which this module is not imported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from agent import release
from agent.certificates.expiry import Certificate
from agent.delivery import Status
from agent.http.metric_sources import Sources
from agent.identity.warnings import Danger
from agent.status import GatewayStatus
from agent.store.counts import EventCounts
from agent.telemetry.process_state import UplinkState
from contract.record import ClockTrust

REASONS = ("invalid", "denied")
REFUSALS = [status for status in Status if status is not Status.DURABLE]


def read_metrics(sources: Sources) -> tuple[str, bytes]:
    """Return media type and text of all metrics; no label names a device, since there may be thousands."""
    registry = CollectorRegistry()
    registry.register(_Agent(sources))
    ProcessCollector(namespace="oncegate", registry=registry)
    return CONTENT_TYPE_LATEST, generate_latest(registry)


class _Agent(Collector):
    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Metric]:
        sources = self._sources
        build = {"version": release.version(), "form": release.form()}
        yield InfoMetricFamily("oncegate_build", "The release.", build)
        yield from _events(sources)
        refused = CounterMetricFamily(
            "oncegate_deliveries_refused", "Deliveries refused as a whole.", labels=("via", "reason")
        )
        for via, counts in sources.counts.items():
            for status in REFUSALS:  # all of them: Prometheus sees no increase in a series that begins above 0
                refused.add_metric((via, status.value), counts.refused[status])
        yield refused
        unserved = CounterMetricFamily(
            "oncegate_messages_unserved", "Messages that had no effect.", labels=("via", "reason")
        )
        for via, transport in sources.transports.items():
            for reason, count in transport.unserved().items():
                unserved.add_metric((via, reason), count)
        yield unserved
        responses = CounterMetricFamily("oncegate_http_responses", "Responses of HTTP.", labels=("code",))
        for code, count in dict(sources.responses).items():
            responses.add_metric((str(code),), count)
        yield responses
        cumulative = sources.commits().cumulative()
        buckets = [("+Inf" if bound == float("inf") else str(bound), count) for bound, count in cumulative]
        yield HistogramMetricFamily(
            "oncegate_commit_seconds",
            "From the beginning of a transaction until it was on disk.",
            buckets=buckets,
            sum_value=sources.commits().total_seconds,
        )
        dangers = CounterMetricFamily(
            "oncegate_identity_warnings", "Events whose device puts their identity at risk.", labels=("danger",)
        )
        for danger in Danger:
            dangers.add_metric((danger.value,), sources.dangers[danger])
        yield dangers
        yield from _troubles(sources.status())
        outbox = GaugeMetricFamily("oncegate_outbox_events", "Events in the store.", labels=("state",))
        for state, count in asdict(sources.outbox()).items():
            outbox.add_metric((state,), count)
        yield outbox
        yield _lanes(sources.lanes())
        yield from _store(sources)
        yield CounterMetricFamily(
            "oncegate_bytes_written", "Written to disk since the store was created.", value=sources.written_bytes()
        )
        yield from _ages(sources)
        trusted = sources.clock.trust() is ClockTrust.TRUSTED
        yield GaugeMetricFamily("oncegate_clock_trusted", "1 where the clock counts as right.", value=trusted)
        up = GaugeMetricFamily("oncegate_link_up", "1 while the connection works as it should.", labels=("link",))
        paused = GaugeMetricFamily("oncegate_link_paused", "1 while it is not used, as configured.", labels=("link",))
        for link, report in sources.links().items():
            up.add_metric((link,), report.state.up)
            paused.add_metric((link,), report.state.paused)
        yield from (up, paused)
        if sources.uplink is not None:
            yield from _uplink(sources.uplink.state(), sources.outbox().new)
        yield _expiries(sources.certificates())


def _troubles(status: GatewayStatus) -> Iterator[Metric]:
    """Yield what hinders the way of events."""
    yield GaugeMetricFamily(
        "oncegate_oversized_events", "Events that Kafka refuses for their size.", value=status.oversized
    )
    stopped = bool(status.forwarding_stopped)
    yield GaugeMetricFamily(
        "oncegate_forwarding_stopped", "1 while nothing is sent until the next start.", value=stopped
    )
    yield CounterMetricFamily(
        "oncegate_mqtt_sessions_lost",
        "Sessions that the MQTT broker has lost, since the store was created.",
        value=status.mqtt_sessions_lost,
    )


def _store(sources: Sources) -> Iterator[Metric]:
    """Yield what the store takes, what it may take, and whether it accepts events."""
    accepting = not sources.trouble()
    yield GaugeMetricFamily("oncegate_accepting", "1 while events of each lane can be stored.", value=accepting)
    yield GaugeMetricFamily(
        "oncegate_store_fill_ratio", "Used part of the bound, of the fullest lane.", value=sources.fill_ratio()
    )
    yield GaugeMetricFamily("oncegate_disk_free_bytes", "Free for the agent.", value=sources.free_bytes())
    yield GaugeMetricFamily(
        "oncegate_devices_silent",
        "Devices whose last event is more than a day and less than a week ago.",
        value=sources.silent_devices(),
    )
    yield GaugeMetricFamily("oncegate_store_bytes", "The store's files.", value=sources.store_bytes())
    yield GaugeMetricFamily("oncegate_store_max_bytes", "The store's bound.", value=sources.store_bytes_max)
    yield GaugeMetricFamily("oncegate_store_log_bytes", "Its write-ahead log.", value=sources.log_bytes())
    forgotten = sources.status().forgotten_early
    yield CounterMetricFamily("oncegate_fingerprints_forgotten_early", "Before identity.retention.", value=forgotten)


def _lanes(counts: Mapping[str, EventCounts]) -> Metric:
    """Return the events of each lane by state."""
    family = GaugeMetricFamily("oncegate_lane_events", "Events in the store of a lane.", labels=("lane", "state"))
    for lane, of_lane in counts.items():
        for state, count in asdict(of_lane).items():
            family.add_metric((lane, state), count)
    return family


def _uplink(uplink: UplinkState, waiting: int) -> Iterator[Metric]:
    """Yield the use of a capped uplink."""
    maximum, sent = uplink.bytes_per_second_max, uplink.sent_bytes
    yield GaugeMetricFamily("oncegate_uplink_max_bytes_per_second", "The cap of the uplink.", value=maximum)
    yield CounterMetricFamily("oncegate_uplink_sent_bytes", "Sent to Kafka by the forwarder.", value=sent)
    seconds = uplink.seconds_left(waiting)
    yield GaugeMetricFamily(
        "oncegate_uplink_seconds_left",
        "How long it takes to send all new events; NaN where it is not known yet what an event takes.",
        value=float("nan") if seconds is None else seconds,
    )


def _expiries(certificates: Sequence[Certificate]) -> Metric:
    """Return when certificates expire, of several in one role the first; 0 for one that cannot be read."""
    family = GaugeMetricFamily(
        "oncegate_certificate_expiry_timestamp_seconds",
        "When the certificate expires, in seconds since 1970 UTC; 0 where it cannot be read.",
        labels=("connection", "role"),
    )
    moments: dict[tuple[str, str], float] = {}
    for one in certificates:
        key = (one.connection, one.role.value)
        moment = 0.0 if one.expires is None else one.expires.timestamp()
        moments[key] = min(moment, moments.get(key, moment))
    for key, moment in moments.items():
        family.add_metric(key, moment)
    return family


def _events(sources: Sources) -> Iterator[Metric]:
    accepted = CounterMetricFamily("oncegate_events_accepted", "Events that are on disk.", labels=("via",))
    duplicates = CounterMetricFamily("oncegate_events_duplicates", "Duplicates recognised.", labels=("via",))
    possible = CounterMetricFamily(
        "oncegate_events_possible_duplicates", "New events that may repeat an earlier one.", labels=("via",)
    )
    rejected = CounterMetricFamily(
        "oncegate_events_rejected", "Events rejected beside valid ones.", labels=("via", "reason")
    )
    mapped = CounterMetricFamily(
        "oncegate_mapped", "What mappings made of messages or elements.", labels=("via", "mapping", "outcome")
    )
    acks = CounterMetricFamily("oncegate_acks", "Deliveries answered as durable.", labels=("via",))
    for via, counts in sources.counts.items():
        transport = sources.transports.get(via)
        retransmissions = 0 if transport is None else transport.duplicates()
        accepted.add_metric((via,), counts.accepted)
        duplicates.add_metric((via,), counts.duplicates + retransmissions)
        possible.add_metric((via,), counts.possible_duplicates)
        for (mapping, outcome), number in sorted(counts.mapped.items()):
            mapped.add_metric((via, mapping, outcome), number)
        acks.add_metric((via,), counts.acks)
        for reason in REASONS:
            rejected.add_metric((via, reason), counts.rejected[reason])
    yield from (accepted, duplicates, possible, rejected, mapped, acks)


def _ages(sources: Sources) -> Iterator[Metric]:
    """Yield how long events have waited; 0 where none does."""
    status, now = sources.status(), sources.clock.wall_ms()
    for name, meaning, since in (
        ("unprocessed", "that the table does not have", status.oldest_unprocessed),
        ("new", "that no broker has", status.oldest_new),
        ("forwarded", "that waits for its receipt", status.oldest_forwarded),
    ):
        age = 0.0 if since is None else max(0, now - since) / 1000
        yield GaugeMetricFamily(f"oncegate_oldest_{name}_seconds", f"Age of the first event {meaning}.", value=age)
