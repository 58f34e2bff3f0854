"""What the store knows of earlier deliveries: fingerprints, transport proofs, and lately seen likenesses.

Everything here has been committed; the commit in work keeps its own until it is durable.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct

from agent.config.settings import IdentitySettings
from agent.store.port import Reject

FINGERPRINT_BYTES = 16
FORGOTTEN = bytes(FINGERPRINT_BYTES)
"""Stands where a fingerprint was, its event given up."""
EXCHANGE_LIFETIME_MS = 247_000
"""How long a retransmission may come after the first transmission (RFC 7252 section 4.8.2)."""
PROOFS_MAX = 100_000
"""About 350 bytes each; 400 a second for the whole of a transport's lifetime. More often, and the oldest are forgotten
before their time, so that their retransmission is another event."""
REJECTIONS_MAX = 1_000
"""Invalid events that are recognised when they come again; a restart forgets them."""
LIKENESSES_MAX = 10_000
"""Of each of the two generations, about 150 bytes each; a likeness only ever gives a hint."""
_MOMENT = Struct("q")


@dataclass(frozen=True, slots=True)
class Spans:
    """How long what is known counts, in milliseconds."""

    likeness_ms: int = 0
    proof_ms: int = EXCHANGE_LIFETIME_MS
    """The longest that any proof counts."""


def spans_of(settings: IdentitySettings) -> Spans:
    """Read them from the settings."""
    windows = (int((rule.window_seconds or 0) * 1000) for rule in settings.rules)
    return Spans(int(settings.resend_window_seconds * 1000), max(EXCHANGE_LIFETIME_MS, *windows, 0))


def split(packed: bytes) -> Iterator[bytes]:
    """Cut packed fingerprints into their pieces."""
    return (packed[at : at + FINGERPRINT_BYTES] for at in range(0, len(packed), FINGERPRINT_BYTES))


class Proofs:
    """What proves a copy for a while only: a delivery's transport, or a rule for devices that never repeat a value."""

    def __init__(self, lifetime_ms: int = EXCHANGE_LIFETIME_MS, count_max: int = PROOFS_MAX) -> None:
        self.lifetime_ms = lifetime_ms
        """The longest that any proof counts."""
        self._count_max = count_max
        self._known: OrderedDict[bytes, tuple[int, int]] = OrderedDict()
        """Position and time by proof, the oldest first."""

    def __len__(self) -> int:
        return len(self._known)

    def remember(self, proof: bytes, position: int, monotonic: int) -> None:
        """Remember that a delivery's events start at this position; `monotonic` is its time in ms."""
        self._known[proof] = (position, monotonic)
        self._known.move_to_end(proof)
        self._let_go(monotonic)

    def position(self, proof: bytes, monotonic: int, lifetime_ms: float = EXCHANGE_LIFETIME_MS) -> int | None:
        """Return the first position of what this proves to be a copy, None where there is none that young."""
        self._let_go(monotonic)
        position, since = self._known.get(proof, (0, 0))
        return position if position and monotonic - since <= lifetime_ms else None

    def _let_go(self, monotonic: int) -> None:
        """Forget what is too old, and what is too much."""
        while self._known:
            oldest, (_, since) = next(iter(self._known.items()))
            if len(self._known) <= self._count_max and monotonic - since <= self.lifetime_ms:
                return
            del self._known[oldest]


class Rejections:
    """Invalid events that are kept already: a pack of copies brings them again."""

    def __init__(self) -> None:
        self._latest: OrderedDict[int, None] = OrderedDict()

    def is_new(self, reject: Reject) -> bool:
        """Whether this one is not among the latest."""
        return hash((reject.device, reject.reason, reject.raw)) not in self._latest

    def remember(self, rejects: Sequence[Reject]) -> None:
        """Remember what is kept now."""
        for reject in rejects:
            self._latest[hash((reject.device, reject.reason, reject.raw))] = None
        while len(self._latest) > REJECTIONS_MAX:
            self._latest.popitem(last=False)


class Likenesses:
    """Events of the last while whose equal would be suspicious, in two generations of one window each."""

    def __init__(self, window_ms: int) -> None:
        self._window_ms = window_ms
        self._now: dict[int, bytes] = {}
        """The moment, then the fingerprint, in one value: as two they would take 100 bytes more."""
        self._before: dict[int, bytes] = {}
        self._since = 0

    def remember(self, latest: Mapping[int, bytes], monotonic: int) -> None:
        """Remember the latest event of each likeness."""
        moment = _MOMENT.pack(monotonic)
        for likeness, fingerprint in latest.items():
            if monotonic - self._since > self._window_ms or len(self._now) >= LIKENESSES_MAX:
                self._before, self._now, self._since = self._now, {}, monotonic
            self._now[likeness] = moment + fingerprint

    def find(self, likeness: int, monotonic: int, seconds: float | None = None) -> bytes | None:
        """Return the fingerprint of the latest event of this likeness within the window, or within some seconds."""
        window_ms = self._window_ms if seconds is None else min(self._window_ms, seconds * 1000)
        found = self._now.get(likeness) or self._before.get(likeness)
        if found is None or monotonic - _MOMENT.unpack_from(found)[0] > window_ms:
            return None
        return found[_MOMENT.size :]
