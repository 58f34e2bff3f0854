"""A minimal gateway: events as records of the contract, without an agent."""

from collections.abc import Iterable

from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its __all__ lacks some of them
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from contract.event import Event
from contract.mac import Signer
from contract.record import STATEMENT
from contract.topics import EVENTS
from simulators.certify.records import Record, now, with_header, without_header
from simulators.certify.records import RecordSource as Gateway
from simulators.services.kafka.broker import Broker
from tests.support.waiting import wait_for_count

__all__ = [
    "Gateway",
    "Record",
    "configure",
    "now",
    "readings",
    "send",
    "signed",
    "with_header",
    "with_more",
    "with_word",
    "without_header",
]


def with_word(record: Record, place: int, word: str) -> Record:
    """Return the record with one word of the gateway's statement replaced."""
    words = dict(record.headers)[STATEMENT].decode().split(" ")
    words[place] = word
    return with_header(record, STATEMENT, " ".join(words).encode())


def readings(count: int, device: str = "urn:dev:mac:0000000000000001", start: int = 0) -> list[Event]:
    """Return events with the present time, distinguished by their counter."""
    return [Event(device, id=start + n, time=now(), data={"t": 20.5 + n}) for n in range(count)]


def send(bootstrap_servers: str, topic: str, records: Iterable[Record], partition: int | None = None) -> None:
    """Produce, and wait until Kafka has all records."""
    # Idempotent: after a late acknowledgement a record would otherwise be sent, and counted, twice.
    options = {"partitioner": "murmur2_random", "linger.ms": 5, "enable.idempotence": True}
    producer = Producer({"bootstrap.servers": bootstrap_servers, **options})
    where = -1 if partition is None else partition
    for record in records:
        headers: list[tuple[str, str | bytes | None]] = list(record.headers)
        producer.produce(topic, record.value, record.key, where, headers=headers)
        producer.poll(0)
    wait_for_count(lambda: producer.flush(1), 0, "records that Kafka has not acknowledged")


def configure(broker: Broker, topic: str, name: str, value: str) -> None:
    """Set one of a topic's properties."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.incremental_alter_configs([resource])[resource].result(30)


def signed(record: Record, key: bytes, topic: str = EVENTS) -> Record:
    """Return the record with its gateway's eighth word."""
    headers = dict(record.headers)
    word = Signer(key, topic)(headers["ce_id"], headers[STATEMENT], record.value)
    return with_more(record, b" " + word)


def with_more(record: Record, words: bytes) -> Record:
    """Return the record with further words of the gateway's statement."""
    return with_header(record, STATEMENT, dict(record.headers)[STATEMENT] + words)
