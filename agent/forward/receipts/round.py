"""One round of questions for two purposes: a poll of the receipts also confirms what a session has acked before."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from agent.forward.kafka.topic import LeaderEpochs
from agent.forward.receipts.rules import View
from agent.store.port import Batch, Outbox

ROUND_EVENTS: Final = 100
"""Acked events from which on a round does not wait for `receipts.poll_seconds`: a kill sends them again."""
ROUND_SECONDS_MIN: Final = 30.0
"""Shortest time between two rounds where `receipts.poll_seconds` is longer."""
PATIENCE_SECONDS: Final = 60.0
"""How much longer than `receipts.poll_seconds` acks wait for a round, which may fail for its group alone."""
POLL_SECONDS_MAX: Final = 600.0
"""The `receipts.poll_seconds` beyond which acks wait no longer: OncegateForwardingStalled counts from 900 s on."""
MARK_SECONDS_MAX: Final = 2.0
"""How long a poll waits for the session: four times as long as that waits for an event."""


@dataclass(frozen=True, slots=True)
class Acked:
    """A session's acks at one time, confirmed or not."""

    session: object = None
    """None where there is no session."""
    to: int = 0
    """How many batches it has acked, confirmed or not, in the order in which they are confirmed."""
    events: int = 0
    """How many events are not confirmed."""
    partitions: frozenset[int] = frozenset()
    """Those that hold them."""


@dataclass(slots=True)
class Confirmed:
    """The brokers' answers to questions asked after acks."""

    acked: Acked
    topic_id: str
    leader_epochs: LeaderEpochs
    done: threading.Event | None = None
    """Set once the batches are marked; None where no poll waits for it."""
    batches: Sequence[Batch] = ()
    """What the poll may decide on by the same answers."""

    def hand_over(self, outbox: Outbox, confirmed_to: int) -> None:
        """Hand the forwarded batches to the waiting poll; called in the marking thread, after the marks.

        Not where the session has also confirmed what it acked later: for that the poll's log end may be too low.
        """
        if self.done is not None:
            if confirmed_to <= self.acked.to:
                self.batches = outbox.forwarded()
            self.done.set()


class SharedRound:
    """What the session and the receipts' poller of a lane hand each other, each in its thread (decision 36)."""

    def __init__(self, poll_seconds: float) -> None:
        self.patience_ms = int((min(poll_seconds, POLL_SECONDS_MAX) + PATIENCE_SECONDS) * 1000)
        """How long acks wait for a round; then the session asks by itself."""
        self.acked = Acked()
        """As of now; set by the session."""
        self._answer: Confirmed | None = None

    def collect(self, session: object) -> Confirmed | None:
        """Return the answer for a session, once; None without one, or where it is for a former session."""
        answer = self._answer
        if answer is None or answer.acked.session is not session:
            return None
        self._answer = None
        return answer

    def confirm(self, acked: Acked, view: View) -> Sequence[Batch]:
        """Have the session confirm, by a view, its acks from before the view's first question.

        Return the batches that are forwarded then, for the same view; none where the session has not marked them, or
        marked later ones, too.
        """
        epochs = {
            number: seen.leader_epoch for number, seen in view.partitions.items() if seen.leader_epoch is not None
        }
        if not acked.events or not acked.partitions <= epochs.keys():
            return ()
        done = threading.Event()
        answer = self._answer = Confirmed(acked, view.topic_id, epochs, done)
        done.wait(MARK_SECONDS_MAX)
        self._answer = None
        return answer.batches
