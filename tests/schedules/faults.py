"""What goes wrong in a schedule, and when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from simulators.oracle.evidence_database import RESTORED
from tests.schedules.kafka.cluster import GROUP
from tests.schedules.kafka.coordinator import Tear
from tests.schedules.scheduler import Process

if TYPE_CHECKING:
    from tests.schedules.world import World

FAULT_SECONDS: Final = 15.0
"""For how long things go wrong."""
FAULTS_MAX: Final = 5
KILL_STEPS_MAX: Final = 80
"""A process is killed at one of so many of its next steps."""
DIVISION_STEPS_MAX: Final = 10
"""The same where a delivery is stored in one lane, and not yet in the other."""

TEARS: Final = 1
"""How many ends of transactions in succession are not carried out."""
KILLED_SHARE: Final = 0.5
OTHER_SHARE: Final = 0.5
OPEN_SECONDS: Final = 0.02
"""How often it is looked whether a transaction is open."""
LOADING_SHARE: Final = 0.5
"""In how many of its starts a coordinator loads its offsets twice."""
LOADING_SECONDS: Final = (0.5, 5.0)
KILLS: Final = 4
"""How often the agent is killed in an outage of Kafka, at most."""


@dataclass(slots=True)
class Faults:
    _world: World
    _random: Random
    _other: Random
    """Draws the commits after which another producer takes the gateway's id."""
    _loading: Random
    """Draws what a coordinator answers that loads its offsets twice."""
    _pending: int = 0
    _ending: Process | None = None
    """The agent that was asked to end in order."""
    _cuts_at_division: bool | None = None
    """How the next delivery of several lanes ends the agent: by a power cut or a kill; None: not at all."""
    planned: list[str] = field(default_factory=list)
    has_exchanged_card: bool = False
    """Whether an older card has taken the place of the agent's."""

    @property
    def are_over(self) -> bool:
        """Whether nothing goes wrong any more, and all that was down is up again."""
        return not self._pending

    def plan(self) -> None:
        random, world = self._random, self._world
        world.cluster.lost_share, world.cluster.late_share = random.choice((0.0, 0.02, 0.1)), random.choice((0.0, 0.02))
        for _ in range(random.randint(0, FAULTS_MAX)):
            name, fault = random.choice(self._all())
            at = random.uniform(0.0, FAULT_SECONDS)
            self.planned.append(f"{name} at {at:.3f} s")
            world.scheduler.call(at, name, fault)
        self._later(FAULT_SECONDS + 5.0, "all is well", self._end)

    def _later(self, seconds: float, name: str, run: Callable[[], None]) -> None:
        """Run a step after some time, until which the faults are not over."""
        self._pending += 1

        def end() -> None:
            self._pending -= 1
            run()

        self._world.scheduler.call(seconds, name, end)

    def stored_in_part(self) -> None:
        """End the agent where that is due once one part of a divided delivery is stored."""
        cut, self._cuts_at_division = self._cuts_at_division, None
        if cut is not None:
            self._end_agent(cut=cut, steps_max=DIVISION_STEPS_MAX)

    def _all(self) -> list[tuple[str, Callable[[], None]]]:
        random, cluster = self._random, self._world.cluster
        coordinator = cluster.coordinator
        of_lanes: list[tuple[str, Callable[[], None]]] = [
            ("kill in a divided delivery", lambda: self._end_at_division(cut=False)),
            ("power cut in a divided delivery", lambda: self._end_at_division(cut=True)),
        ]
        of_transactions: list[tuple[str, Callable[[], None]]] = [
            *[("torn transaction", self._tear)] * 3,
            ("late ends of transactions in partitions", partial(setattr, coordinator, "late", 0.5)),
            ("late requests to commit", partial(setattr, coordinator, "delayed", 0.5)),
            ("partition without a leader", self._take_leader),
            ("kills in an outage of Kafka", self._kill_in_outage),
        ]
        return [
            *(of_lanes if self._world.has_lanes else ()),
            *(of_transactions if self._world.is_exactly_once else ()),
            ("kill of the agent", lambda: self._end_agent(cut=False)),
            ("power cut", lambda: self._end_agent(cut=True)),
            ("restart of the agent", self._stop_agent),
            ("older card", self._exchange_card),
            ("kill of the job", lambda: self._world.job.kill(random.randrange(KILL_STEPS_MAX))),
            ("outage of Kafka", lambda: self._begin_outage(random.uniform(0.5, 40.0))),
            ("election", lambda: cluster.elect(random.randrange(len(cluster.partitions)))),
            ("truncation", self._truncate),
            ("topic made anew", lambda: cluster.recreate(keeps_offsets=random.random() < 0.5)),
            ("retention", self._expire),
            ("clock set back", lambda: self._step_clock(-random.randint(2, 7200))),
            ("clock set ahead", lambda: self._step_clock(random.randint(2, 7200))),
        ]

    def _end(self) -> None:
        self._cuts_at_division = None
        world = self._world
        coordinator = world.cluster.coordinator
        coordinator.tears, coordinator.overtaken, coordinator.late, coordinator.delayed = [], [], 0.0, 0.0
        world.cluster.lost_share, world.cluster.late_share, world.cluster.loading = 0.0, 0.0, None
        world.clocks.offset_ms = 0
        for process in (world.gateway.process, world.job.process):
            if process is not None:
                process.kill_after = None

    # The gateway

    def _end_agent(self, *, cut: bool, steps_max: int = KILL_STEPS_MAX) -> None:
        """Kill the agent at one of its next steps, by a power cut or not, and start it again later."""
        process = self._world.gateway.process
        if process is None or not process.alive:
            return

        def killed() -> None:
            if cut:
                self._world.card.leave_cut()
                self._world.clocks.boots += 1
            else:
                self._world.card.leave_killed()
            self._start_later(self._random.uniform(0.1, 5.0))

        process.killed = killed
        process.kill_after = self._random.randrange(steps_max)

    def _end_at_division(self, *, cut: bool) -> None:
        self._cuts_at_division = cut

    def _stop_agent(self) -> None:
        """End the agent in order, and start it again."""
        world = self._world
        process = world.gateway.process
        if process is None or not process.alive or process.kill_after is not None or process is self._ending:
            return
        self._pending += 1
        self._ending = process
        world.gateway.stop()
        world.scheduler.call(0.5, "systemd looks", lambda: self._await_end(process))

    def _await_end(self, process: Process) -> None:
        if process.alive:
            self._world.scheduler.call(0.5, "systemd looks", lambda: self._await_end(process))
            return
        if not process.is_killed:
            self._start_later(0.0)
        self._pending -= 1

    def _exchange_card(self) -> None:
        """Make an image of the card, and exchange the card for it once all events on it are processed.

        Acked events that only the newer card has are lost with it, and no software could change that.
        """
        world = self._world
        if world.card.backup is None and world.gateway.is_up:
            world.card.back_up()
            world.scheduler.call(self._random.uniform(0.5, 8.0), "gateway idle?", self._exchange_when_idle)

    def _exchange_when_idle(self) -> None:
        world = self._world
        process = world.gateway.process
        if world.is_field_over:
            return
        if process is None or not world.gateway.is_idle:
            world.scheduler.call(0.1, "gateway idle?", self._exchange_when_idle)
            return
        process.kill_after, process.killed = None, lambda: None
        world.scheduler.kill(process)
        world.card.restore()
        world.clocks.boots += 1
        world.ledger.happened("agent", RESTORED)
        self.has_exchanged_card = True
        self._start_later(1.0)

    def _start_later(self, seconds: float) -> None:
        self._later(seconds, "agent starts again", self._world.start_agent)

    def _step_clock(self, seconds: int) -> None:
        self._world.clocks.offset_ms += seconds * 1000

    # Kafka

    def _begin_outage(self, seconds: float) -> None:
        self._world.cluster.is_up = False
        self._later(seconds, "Kafka is back", self._end_outage)

    def _kill_in_outage(self) -> None:
        """Begin an outage in which the agent is killed again and again: its next batch has events of several epochs."""
        seconds = self._random.uniform(5.0, 20.0)
        self._begin_outage(seconds)
        for _ in range(KILLS):
            at = self._random.uniform(0.0, seconds)
            self._world.scheduler.call(at, "kill of the agent", lambda: self._end_agent(cut=False))

    def _tear(self) -> None:
        """Have the ends of the next transactions not reach the topic, the groups' offsets, or both.

        Some of them are those of an agent that is killed, and some are aborted by another agent with its id.
        """
        self._world.cluster.coordinator.tears += self._random.choices(tuple(Tear), k=TEARS)
        if self._random.random() < KILLED_SHARE:
            self._kill_in_transaction()
        if self._other.random() < OTHER_SHARE:
            self._world.cluster.coordinator.overtaken.append(self._other.choice(tuple(Tear)))

    def _kill_in_transaction(self) -> None:
        """Kill the agent once a transaction is open, if its end is not to be carried out."""
        coordinator = self._world.cluster.coordinator
        if coordinator.is_open:
            self._end_agent(cut=False, steps_max=DIVISION_STEPS_MAX)
        elif coordinator.tears:
            self._world.scheduler.call(OPEN_SECONDS, "transaction open?", self._kill_in_transaction)

    def _take_leader(self) -> None:
        """Leave a partition without a leader for some time; then another one has everything."""
        cluster = self._world.cluster
        number = self._random.randrange(len(cluster.partitions))
        if number in cluster.leaderless:
            return
        cluster.leaderless.add(number)

        def elect() -> None:
            cluster.leaderless.discard(number)
            cluster.elect(number)

        self._later(self._random.uniform(0.5, 40.0), "leader again", elect)

    def _end_outage(self) -> None:
        self._world.cluster.is_up = True
        if self._loading.random() < LOADING_SHARE:
            cluster = self._world.cluster
            cluster.loading = self._loading
            loaded = partial(setattr, cluster, "loading", None)
            self._world.scheduler.call(self._loading.uniform(*LOADING_SECONDS), "offsets are loaded", loaded)

    def _truncate(self) -> None:
        cluster = self._world.cluster
        number = self._random.randrange(len(cluster.partitions))
        place = cluster.partitions[number]
        cluster.truncate(number, max(place.low, place.end - self._random.randint(1, 6)))

    def _expire(self) -> None:
        """Delete what the table has read: retention is longer than the job is ever behind, and a session ever waits."""
        cluster = self._world.cluster
        for number, place in enumerate(cluster.partitions):
            committed = cluster.groups.get(GROUP, {}).get(number)
            if committed is not None and self._random.random() < 0.5:
                cluster.expire(number, min(committed.offset, place.latest_transactions))
