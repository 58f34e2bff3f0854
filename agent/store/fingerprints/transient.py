"""The store's memory of the latest deliveries: retransmission keys, similarity keys, rejected events.

It contains committed deliveries only; the commit in progress keeps its own until it is durable.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Final

from agent.store.port import Reject

FINGERPRINT_BYTES: Final = 16
FORGOTTEN: Final = bytes(FINGERPRINT_BYTES)
"""Replaces a fingerprint whose event is in a gap."""
EXCHANGE_LIFETIME_MS: Final = 247_000
"""How long after the first transmission a retransmission may arrive (RFC 7252 section 4.8.2)."""
RETRANSMISSION_KEYS_MAX: Final = 100_000
"""About 350 bytes each; 400 a second for the whole of a transport's lifetime. At a higher rate the oldest are forgotten
early, so that their retransmission is stored as another event."""
RECENT_REJECTS_MAX: Final = 1_000
"""Rejected events that are recognised when they arrive again; not kept over a restart."""
SIMILARITY_KEYS_MAX: Final = 10_000
"""In each of the two generations, about 150 bytes each."""
_MOMENT: Final = Struct("q")


def split(packed: bytes) -> list[bytes]:
    """Return the single fingerprints of packed ones."""
    return [packed[at : at + FINGERPRINT_BYTES] for at in range(0, len(packed), FINGERPRINT_BYTES)]


class RetransmissionKeys:
    """Keys that prove a duplicate for a limited time: of retransmissions, or of rules with a window."""

    def __init__(self, lifetime_ms: int = EXCHANGE_LIFETIME_MS, count_max: int = RETRANSMISSION_KEYS_MAX) -> None:
        self.lifetime_ms = lifetime_ms
        """The longest that any key counts."""
        self._count_max = count_max
        self._positions: OrderedDict[bytes, tuple[int, int]] = OrderedDict()
        """Position and time by key, the oldest first."""

    def remember(self, key: bytes, position: int, monotonic_ms: int) -> None:
        """Remember that a delivery's events start at this position; `monotonic_ms` is its time."""
        self._positions[key] = (position, monotonic_ms)
        self._positions.move_to_end(key)
        self._expire(monotonic_ms)

    def position(self, key: bytes, monotonic_ms: int, lifetime_ms: float = EXCHANGE_LIFETIME_MS) -> int | None:
        """Return the first position of the delivery with this key; None where none is that young."""
        self._expire(monotonic_ms)
        position, since_ms = self._positions.get(key, (0, 0))
        return position if position and monotonic_ms - since_ms <= lifetime_ms else None

    def _expire(self, monotonic_ms: int) -> None:
        """Forget keys that are too old, and the oldest of too many."""
        while self._positions:
            oldest, (_, since_ms) = next(iter(self._positions.items()))
            if len(self._positions) <= self._count_max and monotonic_ms - since_ms <= self.lifetime_ms:
                return
            del self._positions[oldest]


class RecentRejects:
    """Rejected events that are kept already: a resent pack contains them again."""

    def __init__(self) -> None:
        self._latest: OrderedDict[int, None] = OrderedDict()

    def is_new(self, reject: Reject) -> bool:
        return hash((reject.device, reject.reason, reject.raw)) not in self._latest

    def remember(self, rejects: Sequence[Reject]) -> None:
        for reject in rejects:
            self._latest[hash((reject.device, reject.reason, reject.raw))] = None
        while len(self._latest) > RECENT_REJECTS_MAX:
            self._latest.popitem(last=False)


class SimilarityKeys:
    """Keys of recent events, in two generations of one window each; an equal key only ever raises suspicion."""

    def __init__(self, window_ms: int) -> None:
        self._window_ms = window_ms
        self._now: dict[int, bytes] = {}
        """The time, then the fingerprint, in one value: as two they would take 100 bytes more."""
        self._before: dict[int, bytes] = {}
        self._since_ms = 0

    def remember(self, latest: Mapping[int, bytes], monotonic_ms: int) -> None:
        """Remember the fingerprint of the latest event of each key."""
        moment = _MOMENT.pack(monotonic_ms)
        for key, fingerprint in latest.items():
            if monotonic_ms - self._since_ms > self._window_ms or len(self._now) >= SIMILARITY_KEYS_MAX:
                self._before, self._now, self._since_ms = self._now, {}, monotonic_ms
            self._now[key] = moment + fingerprint

    def find(self, key: int, monotonic_ms: int, seconds: float | None = None) -> bytes | None:
        """Return the fingerprint of the key's latest event within the window, or within `seconds` if that is less."""
        window_ms = self._window_ms if seconds is None else min(self._window_ms, seconds * 1000)
        found = self._now.get(key) or self._before.get(key)
        if found is None or monotonic_ms - _MOMENT.unpack_from(found)[0] > window_ms:
            return None
        return found[_MOMENT.size :]
