"""The answers given lately, for requests that come again (RFC 7252 section 4.5)."""

from __future__ import annotations

from collections import OrderedDict
from struct import Struct

_MOMENT = Struct("d")


class Memory:
    """Answers by the proof of their request, oldest first; forgotten after their lifetime, or when too many came."""

    def __init__(self, lifetime_seconds: float, answers_max: int) -> None:
        self._lifetime_seconds = lifetime_seconds
        self._answers_max = answers_max
        self._answers: OrderedDict[bytes, bytes] = OrderedDict()
        """Each behind the moment of its request, in one value: as two they would take 100 bytes more."""

    def __len__(self) -> int:
        return len(self._answers)

    def remember(self, proof: bytes, received: float, answer: bytes) -> None:
        """Keep the answer to a request that was received at this moment."""
        answers = self._answers
        answers[proof] = _MOMENT.pack(received) + answer
        if len(answers) > self._answers_max or self._outlived(next(iter(answers.values())), received):
            self._forget(received)

    def recall(self, proof: bytes, now: float) -> bytes | None:
        """Find the answer; past its lifetime the same datagram is a new request, which may say the same thing again."""
        found = self._answers.get(proof)
        if found is None:
            return None
        if not self._outlived(found, now):
            return found[_MOMENT.size :]
        del self._answers[proof]
        return None

    def clear(self) -> None:
        """Forget all answers: whatever comes again is decided anew. An empty one stands for work that has none yet."""
        for proof in [proof for proof, kept in self._answers.items() if len(kept) > _MOMENT.size]:
            del self._answers[proof]

    def _forget(self, now: float) -> None:
        answers = self._answers
        while len(answers) > self._answers_max or (answers and self._outlived(next(iter(answers.values())), now)):
            answers.popitem(last=False)

    def _outlived(self, kept: bytes, now: float) -> bool:
        received: float = _MOMENT.unpack_from(kept)[0]
        return now - received >= self._lifetime_seconds
