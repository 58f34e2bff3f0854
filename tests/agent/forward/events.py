"""Events to forward."""

from collections.abc import Iterator

from contract.event import Event

DEVICES = 10


def device(number: int) -> str:
    return f"urn:dev:mac:00124b00000000{number:02x}"


def readings(count: int, start: int = 0) -> Iterator[Event]:
    """Yield readings of some devices in turn; `id` counts each device's own."""
    for number in range(start, start + count):
        data = {"temperature": 20 + number % 7 / 2, "humidity": 40.5, "battery": 3012}
        yield Event(device(number % DEVICES), id=number // DEVICES, time=1_763_700_000_000 + number, data=data)
