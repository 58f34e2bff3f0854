"""The comparison counts what a gateway loses and duplicates; the gateways here are twins in memory."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.losses import contest


class Forgetful:
    """Stores in memory, and loses with a kill what it has not sent on; recognises nothing."""

    def __init__(self, *, durable: bool, recognises: bool) -> None:
        self._durable, self._recognises = durable, recognises
        self._stored: list[int] = []
        self.kills = 0

    def start(self) -> None:
        pass

    def kill(self) -> None:
        self.kills += 1
        if not self._durable:
            self._stored.clear()

    def uplink(self, *, up: bool) -> None:
        pass

    def send(self, number: int, again: int, *, cut: bool) -> bool:
        if not (self._recognises and number in self._stored):
            self._stored.append(number)
        return not cut

    def arrived(self) -> Counter[int]:
        return Counter(self._stored)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"EVENTS": 200, "PAUSE_SECONDS": 0.005, "QUIET_SECONDS": 0.0, "STEP_SECONDS": 0.002}.items():
        monkeypatch.setattr(contest, name, value)


def test_a_gateway_that_keeps_everything_and_recognises_duplicates_has_neither() -> None:
    outcome = contest.run("good", Forgetful(durable=True, recognises=True), 7)
    assert (outcome.acknowledged, outcome.lost, outcome.duplicated, outcome.kills) == (200, 0, 0, 3)
    assert outcome.transmissions > 200


def test_what_a_kill_takes_is_lost() -> None:
    assert contest.run("forgetful", Forgetful(durable=False, recognises=True), 7).lost > 0


def test_what_is_stored_again_is_duplicated() -> None:
    outcome = contest.run("blind", Forgetful(durable=True, recognises=False), 7)
    assert outcome.duplicated == outcome.transmissions - outcome.events > 0
