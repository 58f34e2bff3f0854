"""The topic of a run, the same for all contenders and written in advance."""

import random
from collections.abc import Iterator

from confluent_kafka import Producer

from contract.event import Event
from contract.mac import Signer
from contract.record import SharedDay
from simulators.certify.records import Record, RecordSource

DUPLICATES = 0.1
DISTANCE_RECORDS = 20_000
"""Largest distance of a duplicate from its first copy."""
DEVICES = 500
VALUE_BYTES = 200


GATEWAYS = "gw-1", "gw-2"


def records(
    count: int, time_ms: int, *, shared: SharedDay = SharedDay.TIME, seed: int = 7, sign: Signer | None = None
) -> Iterator[Record]:
    """Yield records of about VALUE_BYTES, a tenth of which repeat an earlier one as another gateway's.

    Each seed has epochs of its own: an audit requires a label to be that of one event.
    """
    chance = random.Random(seed)
    recent: list[Event] = []
    first, second = (RecordSource(name, f"{seed:08x}{number:08x}", sign=sign) for number, name in enumerate(GATEWAYS))
    for number in range(count):
        is_copy = bool(recent) and chance.random() < DUPLICATES
        event = chance.choice(recent) if is_copy else _event(number, time_ms, shared, chance)
        if not is_copy:
            recent.append(event)
            if len(recent) > DISTANCE_RECORDS:
                recent.pop(chance.randrange(len(recent)))
        yield (second if is_copy else first).record(event)


def send(bootstrap_servers: str, topic: str, records: Iterator[Record]) -> int:
    """Produce the records, wait until Kafka has all of them, and return their number."""
    ends = {"bootstrap.servers": bootstrap_servers, "partitioner": "murmur2_random"}
    queue = {"linger.ms": 50, "queue.buffering.max.messages": 500_000, "compression.type": "lz4"}
    # Idempotent: each contender waits for a count, which a record sent twice would falsify.
    producer = Producer({**ends, **queue, "enable.idempotence": True})
    sent = 0
    for record in records:
        while True:
            try:
                producer.produce(topic, record.value, record.key, headers=list(record.headers))
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
        sent += 1
    if producer.flush(120):
        raise RuntimeError(f"topic {topic}: Kafka has not taken all records")
    return sent


def _event(number: int, time_ms: int, shared: SharedDay, chance: random.Random) -> Event:
    device = f"urn:dev:mac:{number % DEVICES:016x}"
    moment = time_ms + number % 1000 if shared is SharedDay.TIME else None
    return Event(device, id=number, time=moment, data={"t": round(chance.uniform(-20, 40), 2), "rh": number % 100})
