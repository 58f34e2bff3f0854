"""Records of one epoch whose gateway states the digests of its sections."""

from dataclasses import replace

from contract.chain import DIGEST_START, extend
from contract.event import Event, Value, gateway_device
from contract.fingerprint import FINGERPRINT_BYTES
from contract.record import VALUE_PREFIX
from tests.cloud.gateway import Gateway, Record

ACCEPTED = 1_763_706_000_123
EPOCH = "00000000000000a1"


def content(record: Record) -> bytes:
    """Return what the gateway hashes of a record."""
    at = len(VALUE_PREFIX)
    tail = record.value[record.value.index(b'"device":') : -1]
    return bytes.fromhex(record.value[at : at + 2 * FINGERPRINT_BYTES].decode()) + tail


def chain(count: int, size: int, later: bytes = b"", celsius: float = 20.5) -> list[Record]:
    """Return the records of one epoch, whose sections have `size` events each, with what a later gateway adds."""
    gateway = Gateway(epoch=EPOCH)
    records: list[Record] = []
    for number in range(1, count + 1):
        if number % size == 1 and records:
            first, last = number - size, number - 1
            digest = extend(DIGEST_START, map(content, records[first - 1 : last])).hex()
            data: dict[str, Value] = {"first": first, "last": last, "digest": digest}
            event = Event(gateway_device("gw-1"), "gateway.checkpoint", f"c{number}", data=data)
        else:
            event = Event(
                "urn:dev:ops:a", id=number, boot=1, time=ACCEPTED + number, data={"t": celsius}, units={"t": "Cel"}
            )
        record = gateway.record(event, ACCEPTED)
        value = record.value.replace(b',"data":', later + b',"data":', 1)[:-1] + later + b"}"
        records.append(replace(record, value=value))
    return records
