"""One part of a run: a topic, gateways, the consumer, and the faults that it meets there."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random, SystemRandom
from typing import Self

from simulators.certify import gateways
from simulators.certify.gateways import PARTITIONS, Ears, Target, TopicTraffic
from simulators.certify.members import Members
from simulators.certify.result import AbsentError, Found, QueryError, Result, ResultError
from simulators.certify.verdict import Facts, is_done
from simulators.display import Display
from simulators.services.kafka.broker import Broker
from simulators.services.kafka.cut_log import cut_log

POLL_SECONDS = 0.02
READ_SECONDS_MAX = 10.0
"""How long the result may be unreadable at a receipt."""
_CUT_EVENTS = 60


@dataclass(frozen=True, slots=True)
class Plan:
    """What is judged, and how."""

    command: Sequence[str]
    result: Result
    faults: frozenset[str]
    kills: int
    events: int
    """Of each of the two gateways, between two faults."""
    wait_seconds: float
    """Without a new receipt for this long, none is expected any more."""
    folder: Path
    seed: int
    in_json: bool


class StandstillError(Exception):
    """No receipt comes any more."""


class Stage:
    """A topic with its gateways, and the consumer's instances."""

    def __init__(self, name: str, plan: Plan, broker: Broker, display: Display) -> None:
        topic = f"oncegate_{SystemRandom().getrandbits(32):08x}_{name}"
        self.target = Target(broker.bootstrap_servers, topic)
        self.facts = Facts(name)
        self.seen: dict[str, int] = {"checks": 0, "checks_down": 0}
        self.notes: list[str] = []
        self._plan = plan
        self._broker = broker
        self._display = display
        self._lock = threading.Lock()
        self._names_places = True
        """Whether a record still has the place at which it was sent."""
        self.members = Members(plan.command, self.target, plan.folder / "logs")
        broker.create_topics(topic, partitions=PARTITIONS)
        gateways.view(self.target)
        self.traffic = TopicTraffic(
            self.target, Ears(self._sent, self._believed), Random(plan.seed), self.facts.malformed
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.members.kill()
        self.traffic.close()

    def work(self) -> None:
        """Faults after which the consumer has to go on: everything gets its receipt in the end."""
        self._burst(odd=False)
        if "retention" in self._plan.faults:
            self._display.fact("retention deletes what the consumer has not read")
            ends = gateways.view(self.target).ends
            gateways.delete_records(self.target, {number: end.offset // 2 for number, end in ends.items()})
        self._display.phase(f"{self.facts.name}: the command starts")
        self.members.start()
        self._wait_for_receipts()
        steps = {
            "kill": self._kills,
            "restart": self._restart,
            "rebalance": self._rebalance,
            "broker": self._restart_broker,
        }
        for name, step in steps.items():
            if name in self._plan.faults:
                step()
        self._burst(odd=False)
        self._wait_for_receipts()
        self.members.stop(1)
        self.judge_end(is_complete=True)

    def retention(self) -> None:
        """After `work`, with the consumer down: records that it has not read are deleted."""
        self._display.phase("retention deletes records that the consumer has read nothing of")
        self._burst(odd=False)
        ends = gateways.view(self.target).ends
        gateways.delete_records(self.target, {number: end.offset for number, end in ends.items()})
        self._burst(odd=False)
        self._watch()

    def truncation(self) -> None:
        """Cut the end off the log, which then has other records there."""
        self._begin()
        number, end = max(gateways.view(self.target).ends.items(), key=lambda one: one[1].offset)
        self.traffic.burst(_CUT_EVENTS, number)
        self._wait_for_receipts()
        self._display.phase(f"the log of partition {number} loses what is above offset {end.offset}")
        self.members.kill()
        self._names_places = False
        cut_log(self._broker, self.target.topic, number, end.offset)
        self.traffic.burst(2 * _CUT_EVENTS, number)
        self._watch()

    def topic(self) -> None:
        """Delete the topic, and make it anew under its name."""
        self._begin()
        self._display.phase("the topic is deleted and made anew")
        ends = gateways.view(self.target).ends
        self.members.kill()
        self._names_places = False
        gateways.delete_topic(self.target)
        self._broker.create_topics(self.target.topic, partitions=PARTITIONS)
        for number, end in ends.items():  # other records at each offset that the consumer has read
            self.traffic.burst(end.offset // 2 + _CUT_EVENTS, number)
        self._watch()

    def _begin(self) -> None:
        self._display.phase(f"{self.facts.name}: the command starts")
        self.members.start()
        self.traffic.burst(self._plan.events // 4)
        self._wait_for_receipts()

    def _kills(self) -> None:
        for number in range(self._plan.kills):
            after = ("a receipt", "rows")[number % 2]
            self._display.phase(f"kill {number + 1} of {self._plan.kills}: directly after {after}")
            self.members.kill()
            self._burst()
            if after == "a receipt":
                self.members.arm()
                self.members.start()
                self._wait(lambda: self.members.is_down)
            else:
                self._start_until_rows()
                self.members.kill()
            with self._lock:
                self._check(list(self.facts.believed))
        self.members.start()
        self._wait_for_receipts()

    def _start_until_rows(self) -> None:
        before = self._count_rows()
        self.members.start()
        self._wait(lambda: self._count_rows() > before)

    def _restart(self) -> None:
        self._display.phase("restart by SIGTERM")
        self._burst()
        self._wait_for_receipts()
        self._burst()
        status = self.members.stop(1)
        self._display.fact(f"it ended with status {status}")
        self.members.start()
        self._wait_for_receipts()

    def _rebalance(self) -> None:
        self._display.phase("a second instance joins; the first is killed; it joins again; the second leaves")
        self.members.start(2)
        try:
            self._wait(lambda: gateways.count_members(self.target) > 1, pause=0.5)
        except StandstillError:
            self.notes.append("rebalances were not seen: the group never had two members; see --faults")
        changes = ((self.members.kill, 1), (self.members.start, 1), (self.members.stop, 2))
        for change, instance in changes:
            self._burst()
            change(instance)
            self._wait_for_receipts()

    def _restart_broker(self) -> None:
        self._display.phase("the broker is killed, and started again")
        self._burst()
        self._broker.kill()
        self._broker.start()
        self._burst()
        self._wait_for_receipts()

    def _burst(self, *, odd: bool = True) -> None:
        if odd and "malformed" in self._plan.faults:
            self.traffic.send_malformed()
        if odd and "aborted" in self._plan.faults:
            self.traffic.abort(self.facts.aborted)
        self.traffic.burst(self._plan.events)

    def _watch(self) -> None:
        """Start the consumer, and wait until it has ended or all is done, or until nothing moves any more.

        It may have to stop, as the contract says, or go on: what counts is that no receipt is wrong.
        """
        self.members.is_supervised = False
        for _ in range(2):  # as its supervisor does
            self.members.start()
            try:
                self._wait(lambda: self.members.is_down or not self.traffic.outstanding)
            except StandstillError:
                self._display.fact("it goes on without receipts")
                break
            if not self.members.is_down:
                self._display.fact("it gave all receipts")
                break
            self._display.fact(f"it ended with status {self.members.ends[-1]}")
        self.members.kill()
        self.judge_end(is_complete=False)

    def _wait_for_receipts(self) -> None:
        self._wait(lambda: not self.traffic.outstanding)

    def _wait(self, done: Callable[[], bool], pause: float = POLL_SECONDS) -> None:
        """Wait; raise StandstillError where no receipt has come for `wait_seconds`."""
        latest, moved = -1, time.monotonic()
        while not done():
            self.traffic.send_again()
            self.members.tend()
            if (left := self.traffic.outstanding) != latest:
                latest, moved = left, time.monotonic()
            elif time.monotonic() - moved > self._plan.wait_seconds:
                raise StandstillError(f"no receipt has come for {self._plan.wait_seconds:g} s")
            total = len(self.facts.places)
            self._display.count(total - left, total, f"{total:,} events, {left:,} without a receipt")
            time.sleep(pause)

    def _count_rows(self) -> int:
        try:
            return self._read().fingerprints.total()
        except ResultError:
            return 0

    def _sent(self, event: str, place: tuple[int, int]) -> None:
        places = self.facts.places.setdefault(event, set())
        if self._names_places:
            places.add(place)

    def _believed(self, events: Sequence[str]) -> None:
        """Judge events that a gateway is about to delete."""
        with self._lock:
            self.members.received()
            self._check(events)
            self.facts.believed.update(events)

    def _check(self, events: Sequence[str]) -> None:
        """Find events that the result does not have, though a receipt says so."""
        doing = "while it was down" if self.members.is_down else "while it ran"
        deadline = time.monotonic() + READ_SECONDS_MAX
        while True:
            try:
                found = self._read()
                break
            except AbsentError as error:
                found, doing = Found(), f"{doing}; {error}"
                break
            except QueryError:
                raise
            except ResultError as error:
                if time.monotonic() > deadline:
                    self.facts.unjudged |= dict.fromkeys(events, f"{doing}: {error}")
                    return
                time.sleep(POLL_SECONDS)
        self.seen["checks_down" if self.members.is_down else "checks"] += 1
        for event in events:
            if not is_done(event, self.facts, found):
                self.facts.premature.setdefault(event, f"{self.facts.name}, {doing}")

    def _read(self) -> Found:
        with self.members.still(paused=self._plan.result.needs_pause):
            return self._plan.result.read(self.target.topic)

    def judge_end(self, *, is_complete: bool) -> None:
        """Note the result as it is at the end, where the consumer was able to go on with receipts for all events."""
        if is_complete:
            self.facts.due = frozenset(self.facts.places)
        try:
            self.facts.found = self._read()
        except AbsentError as error:
            self.facts.found = Found()
            self.notes.append(f"{self.facts.name}: {error}")
        except ResultError as error:
            self.notes.append(f"{self.facts.name}: the result cannot be read: {error}")
