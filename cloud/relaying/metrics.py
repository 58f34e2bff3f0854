"""The relay's metrics for Prometheus; docs/relay.md explains each."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge, start_http_server

from cloud.errors import StopError
from cloud.relaying.relay import Relay

PREFIX = "oncegate_relay"


class RelayMetrics:
    """Gauges, served over HTTP if an address is set."""

    def __init__(self, address: tuple[str, int] | None) -> None:
        self.registry = CollectorRegistry()
        self._held = self._gauge("held", "1 while no further receipt is given")
        self._waiting = self._gauge("waiting_partitions", "Partitions in which a group has committed no offset")
        self._looked = self._gauge("look_timestamp_seconds", "Time of the latest look at all groups")
        self._behind = self._gauge("behind_records", "Records between the first of the groups and this one", "group")
        if address is not None:
            try:
                start_http_server(address[1], address[0], self.registry)
            except OSError as error:
                raise StopError(f"metrics: cannot listen on {address[0]}:{address[1]}: {error}") from error

    def looked(self, relay: Relay) -> None:
        """Note what a look has found."""
        self._looked.set_to_current_time()
        self._waiting.set(len(relay.waiting))
        most = {p: max(group.offsets.get(p, 0) for group in relay.groups) for p in relay.groups[0].offsets}
        for group in relay.groups:
            self._behind.labels(group.name).set(sum(end - group.offsets.get(p, 0) for p, end in most.items()))

    def hold(self) -> None:
        """Note that no further receipt is given."""
        self._held.set(1)

    def _gauge(self, name: str, help_: str, *labels: str) -> Gauge:
        return Gauge(f"{PREFIX}_{name}", help_, labels, registry=self.registry)
