"""Run several Kafka brokers as one cluster, on this machine: each may be stopped, killed and started by itself."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from simulators.services import ports
from simulators.services.broker_settings import Node
from simulators.services.kafka import Broker, new_cluster

NODES = 3


class KafkaCluster:
    """Brokers that keep three copies of everything, of which two have to be in sync for an ack."""

    def __init__(self, folder: Path) -> None:
        chosen = ports.free(2 * NODES)
        pairs = tuple(zip(chosen[:NODES], chosen[NODES:], strict=True))
        cluster = new_cluster()
        self.brokers = [
            Broker(folder / f"node-{number}", node=Node(number, cluster, pairs)) for number in range(1, NODES + 1)
        ]

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Start all that do not run, at once: one by itself waits for the others."""
        with ThreadPoolExecutor(NODES) as threads:
            for starting in [threads.submit(broker.start) for broker in self.brokers if not broker.running]:
                starting.result()

    def kill(self) -> None:
        """End all by SIGKILL."""
        for broker in self.brokers:
            broker.kill()

    @property
    def bootstrap_servers(self) -> str:
        """The addresses for clients."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers)

    def node(self, number: int) -> Broker:
        """Return a broker by its number, from 1 on, as Kafka names leaders."""
        return self.brokers[number - 1]
