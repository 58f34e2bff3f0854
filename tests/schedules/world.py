"""A world from one seed: sensors on a lossy link, the agent on its card, Kafka, the job, and what goes wrong."""

import random as global_random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from agent.clock import SystemClock
from agent.forward.errors import UnreachableError
from agent.forward.kafka import connect
from agent.store import lanes as lane_stores
from agent.store.lanes import JoinedOutcome
from agent.store.port import Outcome, Submission
from agent.store.write import removal
from contract.event import DEVICE_RESERVED_PREFIX, TYPE_DEFAULT
from simulators import payloads
from simulators.evidence.row import Row
from simulators.evidence.topic import row_of
from simulators.fleet import play
from simulators.ledger import Ledger, Line, Reported, read
from simulators.link.faults import link_profile
from simulators.link.udp import Link
from simulators.oracle.evidence_database import EvidenceDatabase
from simulators.oracle.judge import judge
from simulators.oracle.verdict import Scope
from simulators.payloads import KnownBy
from simulators.scenario import FleetPlan, LinkPlan, SensorKind
from simulators.sensors.endpoint import Timing
from simulators.sensors.field import Field, Targets
from tests.schedules import replaced
from tests.schedules.card import Card
from tests.schedules.faults import FAULT_SECONDS, Faults
from tests.schedules.gateway import LANES, PORT, Clocks, Gateway, settings_of
from tests.schedules.job_process import Job
from tests.schedules.kafka import clients
from tests.schedules.kafka.cluster import Cluster
from tests.schedules.kafka.transactional import TransactionalProducer
from tests.schedules.loop import HOST, Network, VirtualLoop
from tests.schedules.premature import Premature
from tests.schedules.scheduler import Process, Scheduler
from tests.schedules.spark import Table, TableRow
from tests.schedules.threads import Queue, threading_of, time_of

START_MS: Final = 1_763_706_000_000
QUIET_SECONDS_MAX: Final = 900.0
"""How long it may take after the last fault until all events are receipted."""
SETTLED_SECONDS: Final = 10.0
"""For how long nothing may be outstanding before the schedule ends."""
STEPS_MAX: Final = 400_000
KINDS: Final = (SensorKind.COAP, SensorKind.SLEEPY, SensorKind.STORE_AND_FORWARD)
LANES_SHARE: Final = 1 / 3
"""Of the schedules; their gateway has a lane for alarms."""
EXACTLY_ONCE_SHARE: Final = 1 / 3
"""Of the schedules; their gateway delivers exactly once."""
GATHER_SECONDS: Final = (None, None, 1.0, 4.0)
"""How long a gateway waits for more events: not at all in half of the schedules."""
PARTITIONS: Final = 2
PARTITIONS_EXACTLY_ONCE: Final = 6
"""Nearly one for each device, so that the last records of a transaction are of several epochs."""
STORE_MAX_BYTES: Final = (72_000, 1 << 30, 1 << 30)
"""The least is full with a few events: it refuses the others until receipts let it remove some."""
BACKLOG_SECONDS: Final = 10.0
"""With which store-and-forward sensors begin in these, so that their first packs are divided."""


@dataclass(frozen=True, slots=True)
class Result:
    seed: int
    digest: str
    steps: int
    seconds: float
    """Of virtual time."""
    events: int
    faults: tuple[str, ...]
    wrong: tuple[str, ...]
    """What the oracle has found; empty where the guarantees held."""
    lanes: bool = False
    """Whether the gateway has lanes."""
    exactly_once: bool = False
    """Whether it delivers exactly once."""


class Joined(JoinedOutcome):
    """The outcome of a divided delivery, which notes when its first part is stored."""

    def __init__(self, submission: Submission, places: Sequence[Sequence[int]], stored: Callable[[], None]) -> None:
        super().__init__(submission, places)
        self._stored: Callable[[], None] | None = stored

    def add(self, part: int, outcome: Outcome) -> None:
        super().add(part, outcome)
        stored, self._stored = self._stored, None
        if stored is not None:
            stored()


class World:
    def __init__(self, seed: int, folder: Path, patch: pytest.MonkeyPatch, keep: Callable[[str], None] | None) -> None:
        global_random.seed(seed)  # aiocoap draws from it
        self._seed = seed
        self._folder = folder
        self._patch = patch
        self.random = Random(f"world {seed}")
        self._sizes = Random(f"sizes {seed}")
        """Draws the sizes of deliveries, and of what a purge deletes at once: one commit, or what is usual."""
        self.has_lanes = Random(f"lanes {seed}").random() < LANES_SHARE
        self.is_exactly_once = Random(f"delivery {seed}").random() < EXACTLY_ONCE_SHARE
        self.scheduler = Scheduler(seed, keep)
        self.clocks = Clocks(self.scheduler, START_MS)
        self.network = Network(self.scheduler)
        partitions = PARTITIONS_EXACTLY_ONCE if self.is_exactly_once else PARTITIONS
        self.cluster = Cluster(self.scheduler, Random(f"kafka {seed}"), self.wall_ms, partitions)
        self.card = Card(folder / "card", self.scheduler, Random(f"card {seed}"))
        lanes, delivery = LANES if self.has_lanes else (), "exactly-once" if self.is_exactly_once else "at-least-once"
        settings = partial(
            settings_of,
            lanes=lanes,
            delivery=delivery,
            store_max_bytes=STORE_MAX_BYTES[-1] if lanes else Random(f"bound {seed}").choice(STORE_MAX_BYTES),
            gather_seconds=Random(f"gather {seed}").choice(GATHER_SECONDS),
        )
        self.gateway = Gateway(self.scheduler, self.network, self.card, settings)
        self.job = Job(self.scheduler, self.cluster, Random(f"job {seed}"), self.wall_ms)
        self.premature = Premature(self.job.table)
        self.faults = Faults(self, Random(f"faults {seed}"), Random(f"other {seed}"), Random(f"loading {seed}"))
        self.ledger = Ledger(folder / "ledger.jsonl", self.wall_ms)
        self.is_field_over = False
        """Whether each sensor has an ack for all of its events."""
        self._field = Process("field")
        self._settled_at: float | None = None
        self._replace()
        self.premature.watch(patch)

    def run(self) -> Result:
        scheduler = self.scheduler
        self.faults.plan()
        self.start_agent()
        self.job.start()
        self._start_sensors()
        wrong: list[str] = []
        ended = scheduler.run(lambda: self.is_field_over and self.faults.are_over, STEPS_MAX)
        if not ended:
            wrong.append("the sensors do not come to an end")
        elif not self._settle():
            wrong.append(f"not all events are receipted {QUIET_SECONDS_MAX:g} s after the last fault")
        processes = [one for one in (self.gateway.process, self.job.process, self._field) if one is not None]
        wrong += [f"{process.name} failed: {process.failure!r}" for process in processes if process.failure is not None]
        ledger = self._folder / "ledger.jsonl"
        # An older card does not know what was sent since its image was made, and sends it again.
        once = self.is_exactly_once and not self.faults.has_exchanged_card
        wrong += _judge_schedule(ledger, self.job.table, self.cluster, complete=ended, lanes=self.has_lanes, once=once)
        wrong += self.premature.found
        faults, events = tuple(self.faults.planned), self.ledger.counts.events
        outcome = (scheduler.digest, scheduler.steps, scheduler.now, events, faults, tuple(wrong))
        return Result(self._seed, *outcome, lanes=self.has_lanes, exactly_once=self.is_exactly_once)

    def wall_ms(self) -> int:
        """Return the right time."""
        return START_MS + int(self.scheduler.now * 1000)

    def start_agent(self) -> None:
        self.gateway.start(self._patch)

    def _replace(self) -> None:
        scheduler, cluster = self.scheduler, self.cluster
        clock, source = time_of(scheduler, START_MS), Random(f"product {self._seed}")
        replacements = replaced.standard(threading_of(scheduler), clock, lambda: Queue(scheduler), source)
        replacements |= self.gateway.replacements() | self.job.replacements()
        kind = TransactionalProducer if self.is_exactly_once else clients.Producer
        replacements |= {
            SystemClock: lambda **_: self.clocks,
            Producer: lambda config: kind(scheduler, cluster, config),
            AdminClient: lambda config: clients.AdminClient(scheduler, cluster, config),
            Consumer: lambda config: clients.Consumer(scheduler, cluster, config),
            connect.check_reachable: self._check_reachable,
        }
        replaced.replace(self._patch, replacements)
        self._patch.setattr(removal, "PIECE_BYTES", self._sizes.choice((1, removal.PIECE_BYTES)))
        if self.has_lanes:
            self._patch.setattr(payloads, "_ALARM_EVERY", 2)  # so that many packs are divided
            self._patch.setattr(lane_stores, "JoinedOutcome", self._join)

    def _join(self, submission: Submission, places: Sequence[Sequence[int]]) -> JoinedOutcome:
        return Joined(submission, places, self.faults.stored_in_part)

    def _check_reachable(self, servers: str, stop: Any) -> None:
        self.scheduler.wait(0.001, "connects")
        if not self.cluster.is_up:
            raise UnreachableError("connection refused")

    def _start_sensors(self) -> None:
        plans, link = self._plan_fleets(), self._plan_link()
        if any(plan.kind is SensorKind.SLEEPY for plan in plans):
            # It begins with the same Token each time, and takes a late copy of an earlier answer for the present one's.
            link = LinkPlan(link.request_loss, link.answer_loss, jitter_seconds=link.jitter_seconds)
        loop = VirtualLoop(self.scheduler, self.network, self._field)

        async def run() -> None:
            async with Link([(HOST, PORT)], link_profile(link), self._seed) as proxy:
                targets = Targets(coap=proxy.address, register_peer=proxy.register_peer)
                field = Field(self.ledger, self._seed, targets, Timing(), lambda at: at > FAULT_SECONDS, self.wall_ms)
                await play(plans, field)

        def run_all() -> None:
            with self.ledger:
                self.ledger.begin({"seed": self._seed, "devices": ""})
                loop.run_until_complete(run())
                self.ledger.end()
                self.is_field_over = True

        self.scheduler.spawn(self._field, "sensors", run_all)

    def _plan_fleets(self) -> list[FleetPlan]:
        random = self.random
        kinds = random.sample(KINDS, 2)
        if self.has_lanes and SensorKind.STORE_AND_FORWARD not in kinds:
            kinds[0] = SensorKind.STORE_AND_FORWARD  # whose packs are divided
        return [
            FleetPlan(
                kind,
                random.randint(1, 2),
                random.choice((1.0, 3.0, 6.0)),
                known_by=(KnownBy.ID, KnownBy.TIME),
                boot=kind is SensorKind.SLEEPY,
                tries=10_000,
                pack_max=5 if self.has_lanes else self._sizes.choice((1, 1, 5, 100)),
                backlog_seconds=BACKLOG_SECONDS if self.has_lanes else 0.0,
            )
            for kind in kinds
        ]

    def _plan_link(self) -> LinkPlan:
        random = self.random
        return LinkPlan(
            request_loss=random.choice((0.0, 0.1, 0.4)),
            answer_loss=random.choice((0.0, 0.2, 0.5)),
            duplicated=random.choice((0.0, 0.2)),
            reordered=random.choice((0.0, 0.2)),
            jitter_seconds=random.choice((0.0, 0.05)),
        )

    def _settle(self) -> bool:
        """Run until nothing is outstanding; return False where that takes too long."""
        end = self.scheduler.now + QUIET_SECONDS_MAX
        self.scheduler.call(QUIET_SECONDS_MAX + 1, "too long", lambda: None)
        self.scheduler.run(lambda: self._is_settled() or self.scheduler.now > end, 2 * STEPS_MAX)
        return self._is_settled()

    def _is_settled(self) -> bool:
        """Whether the gateway has had its receipts, and the table all of the topic, for some seconds."""
        last, now = self.job.table.last, self.scheduler.now
        read_to = {} if last is None else last.ends  # nothing of a partition in which nothing was: a topic made anew
        has_all = all(read_to.get(number, 0) == place.end for number, place in enumerate(self.cluster.partitions))
        if not (has_all and self.gateway.is_idle):
            self._settled_at = None
        elif self._settled_at is None:
            self._settled_at = now
        return self._settled_at is not None and now - self._settled_at > SETTLED_SECONDS


def _judge_schedule(
    ledger: Path, table: Table, cluster: Cluster, *, complete: bool, lanes: bool, once: bool
) -> list[str]:
    """Return what the sensors' ledger, table and topic show as wrong; a topic that has lost records is no evidence.

    With lanes the order of a device's events is that of each lane: each type is judged as a device of its own.
    With `once` no event may be in the topic twice.
    """
    lines, rows, records = read(ledger), rows_of(table), records_of(cluster)
    if lanes:
        lines, rows, records = map(_reported_by_lane, lines), map(_row_by_lane, rows), map(_row_by_lane, records)
    with EvidenceDatabase() as evidence:
        evidence.add_ledger(lines)
        evidence.add_rows(rows)
        if not cluster.has_lost:
            evidence.add_records(records)
        verdict = judge(evidence, Scope(complete=complete))
    repeats = [f"in the topic twice: {verdict.repeats}"] if once and verdict.repeats else []
    return [*(f"{name}: {count}" for name, count in verdict.faults.items()), *map(str, verdict.violations), *repeats]


def _reported_by_lane(line: Line) -> Line:
    if not isinstance(line, Reported):
        return line
    return replace(line, event=replace(line.event, device=_lane_of(line.event.device, line.event.type)))


def _row_by_lane(row: Row) -> Row:
    return row._replace(device=_lane_of(row.device, row.type))


def _lane_of(device: str, type_: str) -> str:
    is_divided = type_ != TYPE_DEFAULT and not device.startswith(DEVICE_RESERVED_PREFIX)
    return f"{device} {type_}" if is_divided else device


def records_of(cluster: Cluster) -> Iterable[Row]:
    """Yield all committed records of the topic, those that retention has deleted, too."""
    for number, place in enumerate(cluster.partitions):
        for offset in filter(place.is_visible, range(place.end)):
            yield _record_of(TableRow(number, offset, place.log[offset]))


def rows_of(table: Table) -> Iterable[Row]:
    """Yield the sensors' rows as the table has them, where ids are text."""
    for record in map(_record_of, table.rows):
        if not record.device.startswith(DEVICE_RESERVED_PREFIX):
            id_, boot = (None if value is None else str(value) for value in (record.id, record.boot))
            yield record._replace(id=id_, boot=boot)


def _record_of(place: TableRow) -> Row:
    return row_of(place.record.value, place.partition, place.offset, place.record.time_ms)
