"""The intake of a gateway with lanes: divides deliveries among the lanes' stores, and joins their outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final

from agent.config.lanes import DEFAULT_LANE, Lane
from agent.store.port import Intake, Outcome, Submission

_KINDS_KEPT: Final = 4_096
"""How many pairs of device and type have their lane in memory."""


class LaneIntake:
    """Implements `port.Intake`: an event goes to the first lane whose patterns match, else to the default lane.

    Both patterns are on what is part of an event's identity, so that a resend goes to the lane of its original.
    """

    def __init__(self, lanes: Sequence[Lane], stores: Mapping[str, Intake]) -> None:
        self._stores = stores
        self._lane_of = lru_cache(maxsize=_KINDS_KEPT)(lambda device, type_: _lane_of(lanes, device, type_))

    def submit(self, submission: Submission) -> None:
        """Store a submission (Intake): as a whole in one lane, or divided among several."""
        candidates = submission.candidates
        places: dict[str, list[int]] = {}
        for place, candidate in enumerate(candidates):
            places.setdefault(self._lane_of(candidate.event.device, candidate.event.type), []).append(place)
        if submission.rejects or not candidates:
            places.setdefault(DEFAULT_LANE, [])  # the default lane keeps all that is rejected
        if len(places) == 1:
            self._stores[next(iter(places))].submit(submission)
            return
        joined = JoinedOutcome(submission, list(places.values()))
        for part, (lane, of_lane) in enumerate(places.items()):
            divided = tuple([candidates[place] for place in of_lane])
            rejects = submission.rejects if lane == DEFAULT_LANE else ()
            key, uptime_ms = submission.retransmission_key, submission.uptime_ms
            self._stores[lane].submit(Submission(divided, rejects, key, _Done(joined, part), uptime_ms, is_part=True))


class JoinedOutcome:
    """The outcome of a divided submission: durable once all parts are, refused where one is."""

    def __init__(self, submission: Submission, places: Sequence[Sequence[int]]) -> None:
        self._submission = submission
        self._places = places
        self._outcomes: dict[int, Outcome] = {}

    def add(self, part: int, outcome: Outcome) -> None:
        """Note the outcome of a part; the last one answers the submission."""
        self._outcomes[part] = outcome
        if len(self._outcomes) == len(self._places):
            self._submission.done(self._join())

    def _join(self) -> Outcome:
        outcomes = [self._outcomes[part] for part in range(len(self._places))]
        refused = [outcome for outcome in outcomes if outcome.refusal]
        if refused:
            return max(refused, key=lambda outcome: outcome.retry_seconds)
        count = len(self._submission.candidates)
        fingerprints, new = [b""] * count, [False] * count
        for places, outcome in zip(self._places, outcomes, strict=True):
            for at, place in enumerate(places):
                fingerprints[place] = outcome.fingerprints[at]
                new[place] = bool(outcome.new) and outcome.new[at]
        suspected = [fingerprint for outcome in outcomes for fingerprint in outcome.suspected]
        accepted = sum(outcome.accepted for outcome in outcomes)
        duplicates = sum(outcome.duplicates for outcome in outcomes)
        return Outcome(accepted, duplicates, tuple(fingerprints), tuple(new), tuple(suspected))


class _Done:
    """Receives the outcome of one part."""

    def __init__(self, joined: JoinedOutcome, part: int) -> None:
        self._joined = joined
        self._part = part

    def __call__(self, outcome: Outcome) -> None:
        self._joined.add(self._part, outcome)


def _lane_of(lanes: Sequence[Lane], device: str, type_: str) -> str:
    for lane in lanes:
        if fnmatchcase(device, lane.device) and fnmatchcase(type_, lane.type):
            return lane.name
    return DEFAULT_LANE
