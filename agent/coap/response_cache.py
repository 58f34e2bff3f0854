"""The cache of recent answers, for retransmitted requests (RFC 7252 section 4.5)."""

from __future__ import annotations

from collections import OrderedDict
from struct import Struct
from typing import Final

_MOMENT: Final = Struct("d")


class ResponseCache:
    """Responses by the retransmission keys of requests, oldest first; evicted after a lifetime, or beyond a number."""

    def __init__(self, lifetime_seconds: float, answers_max: int) -> None:
        self._lifetime_seconds = lifetime_seconds
        self._answers_max = answers_max
        self._answers: OrderedDict[bytes, bytes] = OrderedDict()
        """Each in one value with the time of its request: two values would take 100 bytes more."""
        self._oldest_received = 0.0
        """The time of the oldest answer's request, when outlived answers were last removed."""

    def __len__(self) -> int:
        return len(self._answers)

    def put(self, key: bytes, received: float, answer: bytes) -> None:
        """Store the answer to a request that was received at this time, in seconds of the loop's clock."""
        answers = self._answers
        answers[key] = _MOMENT.pack(received) + answer
        if len(answers) > self._answers_max:
            answers.popitem(last=False)
        if received - self._oldest_received >= self._lifetime_seconds:
            self._forget(received)

    def get(self, key: bytes, now: float) -> bytes | None:
        """Return the answer, None where there is none; after its lifetime an equal datagram is a new request."""
        found = self._answers.get(key)
        if found is None:
            return None
        if not self._outlived(found, now):
            return found[_MOMENT.size :]
        del self._answers[key]
        return None

    def clear(self) -> None:
        """Remove all answers but empty ones, which represent requests in progress."""
        for key in [key for key, kept in self._answers.items() if len(kept) > _MOMENT.size]:
            del self._answers[key]

    def _forget(self, now: float) -> None:
        answers = self._answers
        while answers and self._outlived(oldest := next(iter(answers.values())), now):
            answers.popitem(last=False)
        self._oldest_received = _received(oldest) if answers else now

    def _outlived(self, kept: bytes, now: float) -> bool:
        return now - _received(kept) >= self._lifetime_seconds


def _received(kept: bytes) -> float:
    received: float = _MOMENT.unpack_from(kept)[0]
    return received
