"""Records the requests that clients send to a broker: to count their bytes."""

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

from simulators.link.faults import LinkFault, Packet

LENGTH_BYTES: Final = 4
SERVE_SECONDS_MAX: Final = 10
"""To begin or end to serve."""
SEGMENT_BYTES: Final = 1_448
"""What a TCP segment carries over Ethernet, with timestamps (RFC 7323)."""
HEAD_BYTES: Final = 52
"""Of IPv4 and TCP with timestamps, for each segment and for each ack of one."""
NAMES: Final = {
    0: "Produce",
    1: "Fetch",
    2: "ListOffsets",
    3: "Metadata",
    9: "OffsetFetch",
    10: "FindCoordinator",
    18: "ApiVersions",
    22: "InitProducerId",
    24: "AddPartitionsToTxn",
    26: "EndTxn",
}
"""Of Kafka's API keys, those of the agent's clients."""
OTHER: Final = "other"

T = TypeVar("T")

Traffic = Counter[str]
"""What was sent for requests of one kind, in both directions: `requests`, `payload bytes` and `segments`."""


def wire_bytes(traffic: Traffic) -> int:
    """Return the bytes with the heads of TCP and IP, if each segment is acknowledged by one of its own."""
    return traffic["payload bytes"] + 2 * HEAD_BYTES * traffic["segments"]


class Recorder:
    """Counts what a link carries, by faults of it that change nothing.

    Without `is_kafka` all traffic is of one kind, and each piece that is read counts as a request.
    """

    def __init__(self, *, is_kafka: bool = True) -> None:
        self._is_kafka = is_kafka
        self._traffic: dict[str, Traffic] = {}
        self._pending: deque[str] = deque()

    def requests(self) -> LinkFault:
        """Return the fault of a new connection's requests."""
        self._pending = deque()  # Kafka answers the requests of a connection in their order
        return _Counted(self, self._pending, is_request=True)

    def answers(self) -> LinkFault:
        """Return that of the answers on the same connection."""
        return _Counted(self, self._pending, is_request=False)

    def cut(self) -> Mapping[str, Traffic]:
        """Return what was sent since the last call, by the kind of request."""
        traffic, self._traffic = self._traffic, {}
        return traffic

    def pieces(self, received: bytes) -> tuple[list[bytes], bytes]:
        """Split what has arrived of one direction into its pieces, and the beginning of the next one."""
        if not self._is_kafka:
            return [received], b""
        whole = []
        while len(received) >= LENGTH_BYTES:
            size = LENGTH_BYTES + int.from_bytes(received[:LENGTH_BYTES], "big")
            if len(received) < size:
                break
            whole.append(received[:size])
            received = received[size:]
        return whole, received

    def count(self, piece: bytes, pending: deque[str], *, is_request: bool) -> None:
        """Count a piece; `pending` are the kinds of the connection's requests that are not answered yet."""
        if not self._is_kafka:
            name = OTHER
        elif is_request:
            name = NAMES.get(int.from_bytes(piece[4:6], "big"), OTHER)
            pending.append(name)
        else:
            name = pending.popleft() if pending else OTHER
        traffic = self._traffic.setdefault(name, Traffic())
        traffic["segments"] += -(-len(piece) // SEGMENT_BYTES)
        traffic["payload bytes"] += len(piece)
        traffic["requests"] += is_request


@dataclass(slots=True)
class _Counted:
    """Counts one direction of a connection."""

    recorder: Recorder
    pending: deque[str]
    is_request: bool
    left: bytes = b""

    def apply(self, packet: Packet) -> tuple[Packet]:
        """Count what is complete with this packet."""
        pieces, self.left = self.recorder.pieces(self.left + packet.datagram)
        for piece in pieces:
            self.recorder.count(piece, self.pending, is_request=self.is_request)
        return (packet,)


@contextmanager
def in_thread(served: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Serve in an event loop of its own for the block."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="served", daemon=True)
    thread.start()
    opened = asyncio.run_coroutine_threadsafe(served.__aenter__(), loop).result(SERVE_SECONDS_MAX)
    try:
        yield opened
    finally:
        asyncio.run_coroutine_threadsafe(served.__aexit__(None, None, None), loop).result(SERVE_SECONDS_MAX)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
