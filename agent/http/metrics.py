"""The agent's metrics in Prometheus' format, collected on request, before which this module is not imported."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

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
from agent.certificates.expiry import Certificate, certificates
from agent.delivery import Status
from agent.http.sources import Sources
from agent.identity.warnings import Danger
from agent.status import GatewayStatus
from agent.store.counts import EventCounts
from agent.store.layout import FILE_NAME
from agent.store.schema import disk_space
from agent.telemetry.links import reports_of
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
        sources, status = self._sources, self._sources.status()
        build = {"version": release.version(), "form": release.form()}
        yield InfoMetricFamily("oncegate_build", "The release.", build)
        yield from _counters(sources)
        cumulative = sources.store.commit_durations.cumulative()
        yield HistogramMetricFamily(
            "oncegate_commit_seconds",
            "From the beginning of a transaction until it was on disk.",
            buckets=[("+Inf" if bound == float("inf") else str(bound), count) for bound, count in cumulative],
            sum_value=sources.store.commit_durations.total_seconds,
        )
        dangers = {(danger.value,): sources.pipeline.warnings.counts[danger] for danger in Danger}
        yield _counter("identity_warnings", "Events whose device puts their identity at risk.", ("danger",), dangers)
        yield _gauge("oversized_events", "Events that Kafka refuses for their size.", status.oversized)
        stopped = bool(status.forwarding_stopped)
        yield _gauge("forwarding_stopped", "1 while nothing is sent until the next start.", stopped)
        lost = "Sessions that the MQTT broker has lost, since the store was created."
        yield _counter("mqtt_sessions_lost", lost, (), {(): status.mqtt_sessions_lost})
        yield _gauges("outbox_events", "Events in the store.", ("state",), _states(sources.store.counts()))
        lanes = {
            (lane, *key): count
            for lane, counts in sources.store.lane_counts().items()
            for key, count in _states(counts).items()
        }
        yield _gauges("lane_events", "Events in the store of a lane.", ("lane", "state"), lanes)
        yield from _store(sources, status)
        yield from _ages(sources, status)
        trusted = sources.clock.trust() is ClockTrust.TRUSTED
        yield _gauge("clock_trusted", "1 where the clock counts as right.", trusted)
        states = {(link,): report.state for link, report in reports_of(sources.state.links).items()}
        up, paused = ({key: getattr(state, name) for key, state in states.items()} for name in ("up", "paused"))
        yield _gauges("link_up", "1 while the connection works as it should.", ("link",), up)
        yield _gauges("link_paused", "1 while it is not used, as configured.", ("link",), paused)
        if sources.state.uplink is not None:
            yield from _uplink(sources.state.uplink(), sources.store.counts().new)
        yield _expiries(certificates(sources.settings))


Values = Mapping[Any, float]
"""By tuples of the labels' values."""


def _family(
    kind: type[CounterMetricFamily | GaugeMetricFamily],
    name: str,
    meaning: str,
    labels: tuple[str, ...],
    values: Values,
) -> Metric:
    family = kind(f"oncegate_{name}", meaning, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


_counter, _gauges = partial(_family, CounterMetricFamily), partial(_family, GaugeMetricFamily)


def _gauge(name: str, meaning: str, value: float) -> Metric:
    return _gauges(name, meaning, (), {(): value})


def _counters(sources: Sources) -> Iterator[Metric]:
    by_via = {(via,): counts for via, counts in sources.pipeline.counts.items()}
    retransmissions = {(via,): transport.duplicates() for via, transport in sources.transports.items()}
    accepted = {via: counts.accepted for via, counts in by_via.items()}
    yield _counter("events_accepted", "Events that are on disk.", ("via",), accepted)
    duplicates = {via: counts.duplicates + retransmissions.get(via, 0) for via, counts in by_via.items()}
    yield _counter("events_duplicates", "Duplicates recognised.", ("via",), duplicates)
    possible = {via: counts.possible_duplicates for via, counts in by_via.items()}
    yield _counter("events_possible_duplicates", "New events that may repeat an earlier one.", ("via",), possible)
    rejected = {(*via, reason): counts.rejected[reason] for via, counts in by_via.items() for reason in REASONS}
    yield _counter("events_rejected", "Events rejected beside valid ones.", ("via", "reason"), rejected)
    mapped = {(*via, *key): number for via, counts in by_via.items() for key, number in sorted(counts.mapped.items())}
    yield _counter("mapped", "What mappings made of messages or elements.", ("via", "mapping", "outcome"), mapped)
    acks = {via: counts.acks for via, counts in by_via.items()}
    yield _counter("acks", "Deliveries answered as durable.", ("via",), acks)
    # All statuses: Prometheus sees no increase in a series that begins above 0.
    refused = {(*via, one.value): counts.refused[one] for via, counts in by_via.items() for one in REFUSALS}
    yield _counter("deliveries_refused", "Deliveries refused as a whole.", ("via", "reason"), refused)
    transports = sources.transports.items()
    unserved = {(via, reason): count for via, one in transports for reason, count in one.unserved().items()}
    yield _counter("messages_unserved", "Messages that had no effect.", ("via", "reason"), unserved)
    responses = {(str(code),): count for code, count in dict(sources.responses).items()}
    yield _counter("http_responses", "Responses of HTTP.", ("code",), responses)


def _states(counts: EventCounts) -> Values:
    return {(state,): count for state, count in asdict(counts).items()}


def _store(sources: Sources, status: GatewayStatus) -> Iterator[Metric]:
    """Yield what the store takes, what it may take, and whether it accepts events."""
    yield _gauge("accepting", "1 while events of each lane can be stored.", not sources.store.trouble())
    yield _gauge("store_fill_ratio", "Used part of the bound, of the fullest lane.", sources.store.fill_ratio())
    path = sources.settings.gateway.state_dir / FILE_NAME
    yield _gauge("disk_free_bytes", "Free for the agent.", disk_space.free_bytes(path))
    silent = "Devices whose last event is more than a day and less than a week ago."
    yield _gauge("devices_silent", silent, sources.pipeline.activity.silent_devices(sources.clock.wall_ms()))
    yield _gauge("store_bytes", "The store's files.", sources.store.disk_bytes())
    yield _gauge("store_max_bytes", "The store's bound.", sources.store.bytes_max)
    yield _gauge("store_log_bytes", "Its write-ahead log.", status.log_bytes)
    forgotten = {(): status.forgotten_early}
    yield _counter("fingerprints_forgotten_early", "Before identity.retention.", (), forgotten)
    written = {(): sources.store.written_bytes()}
    yield _counter("bytes_written", "Written to disk since the store was created.", (), written)


def _uplink(uplink: UplinkState, waiting: int) -> Iterator[Metric]:
    yield _gauge("uplink_max_bytes_per_second", "The cap of the uplink.", uplink.bytes_per_second_max)
    yield _counter("uplink_sent_bytes", "Sent to Kafka by the forwarder.", (), {(): uplink.sent_bytes})
    seconds = uplink.seconds_left(waiting)
    left = "How long it takes to send all new events; NaN where it is not known yet what an event takes."
    yield _gauge("uplink_seconds_left", left, float("nan") if seconds is None else seconds)


def _expiries(known: Sequence[Certificate]) -> Metric:
    """Return when certificates expire, of several in one role the first; 0 for one that cannot be read."""
    moments: dict[tuple[str, ...], float] = {}
    for one in known:
        key = (one.connection, one.role.value)
        moment = 0.0 if one.expires is None else one.expires.timestamp()
        moments[key] = min(moment, moments.get(key, moment))
    meaning = "When the certificate expires, in seconds since 1970 UTC; 0 where it cannot be read."
    return _gauges("certificate_expiry_timestamp_seconds", meaning, ("connection", "role"), moments)


def _ages(sources: Sources, status: GatewayStatus) -> Iterator[Metric]:
    """Yield how long events have waited; 0 where none does."""
    now = sources.clock.wall_ms()
    for name, meaning, since in (
        ("unprocessed", "that the table does not have", status.oldest_unprocessed),
        ("new", "that no broker has", status.oldest_new),
        ("forwarded", "that waits for its receipt", status.oldest_forwarded),
    ):
        age = 0.0 if since is None else max(0, now - since) / 1000
        yield _gauge(f"oldest_{name}_seconds", f"Age of the first event {meaning}.", age)
