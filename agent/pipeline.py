"""The path of an event on the gateway up to its ACK: receive, decode, fingerprint, store, ack."""

from collections.abc import Callable, Iterable, Mapping
from time import monotonic
from typing import Final

from agent.admission import Admission, ForbiddenError, Quota, StoredShares, UnauthenticatedError, is_denial
from agent.clock import Clock
from agent.config.settings import DevicesSettings, IdentitySettings
from agent.config.ways import WayIn, limits
from agent.decode.decoded import REJECTED_BYTES_MAX, Decoded, Undecodable, UnknownFormat
from agent.decode.delivery_body import decode
from agent.delivery import Answer, Delivery, ForeignFormat, Respond, Status
from agent.identity.identify import identify
from agent.identity.warnings import IdentityWarnings
from agent.store.port import Candidate, Intake, Outcome, Reject, Submission
from agent.telemetry.activity import Activity
from agent.telemetry.counters import DeliveryCounts, MemoryBudget, memory_bytes
from agent.telemetry.refusals import Refusals
from contract.record import ClockTrust

BUSY_RETRY_SECONDS: Final = 5
_REFUSALS: Final[Mapping[type[Exception], Status]] = {
    UnknownFormat: Status.UNKNOWN_FORMAT,
    Undecodable: Status.UNDECODABLE,
    ForbiddenError: Status.FORBIDDEN,
    UnauthenticatedError: Status.UNAUTHENTICATED,
}
_TOO_MANY: Final = "more events than devices.events_per_second_max"
_TOO_MUCH: Final = "more undelivered events than devices.stored_bytes_max"
_BUSY: Final = Answer(Status.UNAVAILABLE, reason="too many deliveries in progress", retry_seconds=BUSY_RETRY_SECONDS)


class Pipeline:
    """Processes the deliveries of all protocols."""

    def __init__(
        self,
        settings: IdentitySettings,
        clock: Clock,
        intake: Intake,
        devices: DevicesSettings | None = None,
        protocols: Mapping[str, WayIn] | None = None,
        undelivered: Callable[[], int] = lambda: 0,
    ) -> None:
        """Create it; `undelivered` tells how many stored events are not known to be in the table."""
        self._settings = settings
        self._clock = clock
        self._intake = intake
        devices = devices or DevicesSettings()
        self._admission = Admission(devices)
        rate = devices.events_per_second_max
        self._quota = None if rate is None else Quota(rate, clock)
        most = devices.stored_bytes_max
        self._shares = None if most is None else StoredShares(most, undelivered, clock)
        protocols = limits() if protocols is None else protocols
        self.counts = {via: DeliveryCounts() for via in protocols}
        """Counts by `via`."""
        self._records_refused = frozenset([via for via, one in protocols.items() if one.records_refused])
        """Whose senders cannot be told: what would be refused is recorded as rejected."""
        self.budgets = {via: MemoryBudget(one.memory_bytes) for via, one in protocols.items()}
        """The memory of the deliveries in progress, by `via`."""
        self.activity = Activity()
        self.refusals = Refusals(lambda: sum(counts.taken for counts in self.counts.values()), clock)
        self.warnings = IdentityWarnings(monotonic)

    def protect(self, devices: Iterable[str]) -> None:
        """Admit events of these devices only from themselves, authenticated, or from a relay."""
        self._admission.protect(devices)

    def trusted_time(self) -> int | None:
        """Return the time in milliseconds since 1970 UTC, None where the clock is untrusted."""
        return self._clock.wall_ms() if self._clock.trust() is ClockTrust.TRUSTED else None

    def receive(self, delivery: Delivery, respond: Respond) -> None:
        """Process a delivery; `respond` is called once, with `Status.DURABLE` only after the commit."""
        if self.budgets[delivery.via].full:
            self._respond(delivery, respond, _BUSY)
            return
        try:
            decoded = self._admission.screen(delivery, decode(delivery))
        except (UnknownFormat, Undecodable, ForbiddenError) as error:
            self._count_mapped(delivery, 0, 0, 1)
            self._refuse(delivery, respond, Answer(_REFUSALS[type(error)], reason=str(error)))
            return
        if delivery.media.__class__ is ForeignFormat:  # without a call: each event of a sensor passes here
            self._count_mapped(delivery, len(decoded.events), decoded.skipped, len(decoded.rejected))
        if decoded.skipped and not decoded.events and not decoded.rejected:
            self._respond(delivery, respond, Answer(Status.DURABLE))
            return
        if not decoded.events:
            reason = decoded.rejected[0].reason if decoded.rejected else "the body holds no event"
            self._refuse(delivery, respond, Answer(Status.UNDECODABLE, rejected=len(decoded.rejected), reason=reason))
            return
        if self._quota is not None and (seconds := self._quota.charge(delivery, decoded.events)):
            self._refuse(delivery, respond, Answer(Status.TOO_MANY, reason=_TOO_MANY, retry_seconds=seconds))
            return
        refusal = ""
        if self._shares is not None and delivery.via not in self._records_refused:  # else it is stored all the same
            refusal = "" if self._shares.admit(delivery, decoded.events) else _TOO_MUCH
        self._store(delivery, decoded, respond, refusal)

    def record(self, delivery: Delivery, reason: str, respond: Respond, status: Status = Status.UNDECODABLE) -> None:
        """Record a delivery that is no event as rejected; `respond` is called as by `receive`."""
        raw = delivery.body[:REJECTED_BYTES_MAX]
        reject = Reject(delivery.sender, delivery.via, self._clock.wall_ms(), reason, raw)

        def recorded(answer: Answer) -> None:
            if answer.status is Status.DURABLE:
                self._count_refused(delivery.via, delivery.sender, Answer(status, reason=reason))
                answer.reason = reason
            respond(answer)

        self._submit(delivery, (), (reject,), None, recorded)

    def refuse(self, via: str, sender: str, answer: Answer) -> None:
        """Count a request that is refused: nothing of it is stored, and its sender is told."""
        self._count_refused(via, sender, answer)
        self.activity.refused(via, sender, answer, self._clock.wall_ms())

    def _refuse(self, delivery: Delivery, respond: Respond, answer: Answer) -> None:
        if delivery.via in self._records_refused:
            self.record(delivery, answer.reason, respond, answer.status)
        else:
            self._respond(delivery, respond, answer)

    def _store(self, delivery: Delivery, decoded: Decoded, respond: Respond, refusal: str) -> None:
        received, trust = self._clock.wall_ms(), self._clock.trust()
        via, settings = delivery.via, self._settings
        candidates = tuple([identify(event, via, received, trust, settings) for event in decoded.events])
        rejects = tuple([Reject(one.device, via, received, one.reason, one.raw) for one in decoded.rejected])
        uptime_ms = None if trust is ClockTrust.TRUSTED else self._clock.uptime_ms()
        self._submit(delivery, candidates, rejects, delivery.retransmission_key, respond, uptime_ms, refusal)

    def _submit(
        self,
        delivery: Delivery,
        candidates: tuple[Candidate, ...],
        rejects: tuple[Reject, ...],
        retransmission_key: bytes | None,
        respond: Respond,
        uptime_ms: int | None = None,
        refusal: str = "",
    ) -> None:
        budget = self.budgets[delivery.via]
        taken = memory_bytes(delivery, candidates, rejects)
        budget.bytes += taken

        def ack(outcome: Outcome) -> None:
            budget.bytes -= taken
            if not outcome.refusal:
                counts = self.counts[delivery.via]
                counts.possible_duplicates += len(outcome.suspected)
                for reject in rejects:
                    counts.rejected["denied" if is_denial(reject.reason) else "invalid"] += 1
                self.activity.stored(delivery.via, candidates, rejects, outcome)
            if self._shares is not None:
                new = (one for one, is_new in zip(candidates, outcome.new, strict=False) if is_new)
                stored = ((one.event.device, len(one.tail)) for one in new)
                self._shares.add(delivery, stored, has_share=delivery.via not in self._records_refused)
            self.warnings.check(candidates, outcome)
            self._respond(delivery, respond, _answer(outcome, len(rejects)))

        self._intake.submit(Submission(candidates, rejects, retransmission_key, ack, uptime_ms, refusal=refusal))

    def _respond(self, delivery: Delivery, respond: Respond, answer: Answer) -> None:
        if answer.status is Status.DURABLE:
            self.counts[delivery.via].add(answer)
        else:
            self.refuse(delivery.via, delivery.authenticated or delivery.sender, answer)
        respond(answer)

    def _count_mapped(self, delivery: Delivery, events: int, skipped: int, rejected: int) -> None:
        if isinstance(delivery.media, ForeignFormat):
            mapped, name = self.counts[delivery.via].mapped, delivery.media.mapping.name
            for outcome, number in (("event", events), ("skipped", skipped), ("rejected", rejected)):
                mapped[name, outcome] += number

    def _count_refused(self, via: str, sender: str, answer: Answer) -> None:
        self.counts[via].refused[answer.status] += 1
        self.refusals.add(via, sender, answer)


def _answer(outcome: Outcome, rejected: int) -> Answer:
    if outcome.refusal:
        status = Status.TOO_MANY if outcome.refusal == _TOO_MUCH else Status.UNAVAILABLE
        return Answer(status, reason=outcome.refusal, retry_seconds=outcome.retry_seconds)
    return Answer(Status.DURABLE, outcome.accepted, outcome.duplicates, rejected, outcome.fingerprints)
