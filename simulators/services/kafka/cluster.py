"""A Kafka cluster of three brokers as local processes."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from simulators.services import ports
from simulators.services.kafka.broker import Broker, Listener, Node, new_cluster
from simulators.services.service import Service

NODES = 3


class KafkaCluster(Service):
    """Brokers with three replicas of every partition, of which two must be in sync for an ack."""

    def __init__(self, folder: Path, listeners: Sequence[Sequence[Listener]] = ((),) * NODES) -> None:
        """Prepare the brokers, each with further listeners."""
        chosen = ports.free(2 * NODES)
        pairs = tuple(zip(chosen[:NODES], chosen[NODES:], strict=True))
        cluster = new_cluster()
        self.brokers = [
            Broker(folder / f"node-{number}", *own, node=Node(number, cluster, pairs))
            for number, own in enumerate(listeners, 1)
        ]

    def start(self) -> None:
        """Start all brokers that do not run, concurrently, since each waits for the others."""
        with ThreadPoolExecutor(NODES) as threads:
            for starting in [threads.submit(broker.start) for broker in self.brokers if not broker.process.alive]:
                starting.result()

    def kill(self) -> None:
        """End all brokers by SIGKILL."""
        for broker in self.brokers:
            broker.kill()

    @property
    def bootstrap_servers(self) -> str:
        """The bootstrap servers for clients."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers)

    def node(self, number: int) -> Broker:
        """Return a broker by its node id, counted from 1."""
        return self.brokers[number - 1]
