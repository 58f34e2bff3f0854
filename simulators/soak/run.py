"""One soak: all services on this machine, sensors and faults for hours, and a verdict at each checkpoint."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median

from simulators import fleet
from simulators import ledger as ledgers
from simulators.arguments import LEDGER_FILE
from simulators.display import Display
from simulators.errors import RunError
from simulators.ledger import Happened, Ledger
from simulators.oracle.verdict import Verdict
from simulators.run import faults, play
from simulators.run.play import Reports
from simulators.run.run import judge_local
from simulators.run.services import Overrides, Services, empty_folder, started
from simulators.run.supervisor import SelfEnd, supervised
from simulators.run.waiting import wait_for_receipts
from simulators.scenario import Scenario
from simulators.sensors.endpoint import Timing
from simulators.sensors.field import Field
from simulators.services import session
from simulators.soak import plan
from simulators.soak.plan import EXACTLY_ONCE, SoakOptions

POLL_SECONDS = 0.5
KINDS = frozenset({"killed", "stopped", "frozen", "disk full", "clock stepped"})
SETTLE_SECONDS_MAX = 900.0
"""How long all events may take to be acked once no new ones are reported, and how long no receipt may arrive then.

The machine may be busy, and a job that was killed starts again and looks a backlog up.
"""


@dataclass(frozen=True, slots=True)
class SoakOutcome:
    """What a soak has found."""

    verdict: Verdict
    seconds: float
    """How long the sensors reported, checkpoints included."""
    checkpoints: int
    """How often the whole evidence was judged; the last time at the end."""
    faults: Mapping[str, int]
    """The faults that were injected, such as `agent killed`."""
    outages: int
    """Outages of the link."""
    ends: Sequence[SelfEnd]
    """The services that ended by themselves and were started again."""
    samples: Sequence[Sample]


async def soak(options: SoakOptions, display: Display, stop: asyncio.Event) -> SoakOutcome:
    """Run one soak in its folder; a stop ends it early, with a verdict. Raise RunError where there is none.

    It ends at the first checkpoint that finds a fault.
    """
    home = options.folder.absolute()
    empty_folder(home)
    seconds, part_seconds = options.seconds, options.checkpoint_seconds
    scenario = plan.scenario(options.seed, seconds, part_seconds, options.events_per_second, lanes=options.lanes)
    async with started(scenario, home, Overrides(delivery=options.delivery), display) as services:
        with Ledger(home / LEDGER_FILE, play.clock) as ledger:
            ledger.begin({"scenario": asdict(scenario), "seed": options.seed, "gateways": len(services.gateways)})
            return await _Soak(options, scenario, services, ledger, display, stop.is_set).run()


@dataclass(slots=True)
class _Soak:
    """A soak whose services run."""

    _options: SoakOptions
    _scenario: Scenario
    _services: Services
    _ledger: Ledger
    _display: Display
    _is_stopped: Callable[[], bool]
    _reports: Reports = field(default_factory=Reports)
    _checkpoints: int = 0

    async def run(self) -> SoakOutcome:
        gauges = Gauges(self._services)
        supervision = supervised(self._services, self._services.by_name, self._ledger, self._display)
        async with supervision as supervisor, asyncio.TaskGroup() as tasks:
            gauging = tasks.create_task(gauges.run())
            seconds, found = await self._play()
            if found is None:
                self._ledger.end()
                found = await self._judge()
            gauging.cancel()
        await asyncio.to_thread(self._services.stop)
        outages = sum(outage.at < seconds for outage in self._scenario.link.outages)
        return SoakOutcome(
            found, seconds, self._checkpoints, _faults_of(self._ledger.path), outages, supervisor.ends, gauges.samples
        )

    async def _play(self) -> tuple[float, Verdict | None]:
        """Run sensors and faults; return how long, and the verdict of a checkpoint that found a fault."""
        begin = time.monotonic()
        gateways = self._services.gateways
        links = play.link_to(self._scenario, self._options.seed, [one.address for one in gateways], None, None, None)
        async with links as targets, asyncio.TaskGroup() as tasks:
            field = Field(
                ledger=self._ledger,
                seed=self._options.seed,
                targets=targets,
                timing=Timing().faster(self._scenario.speed),
                is_over=lambda _: self._reports.suffice.is_set(),
                clock=play.clock,
                may_report=self._reports.enabled,
            )
            statuses = [gateway.http_address for gateway in gateways]
            watch = play.watch(self._scenario, self._ledger, statuses, self._display)
            watching = tasks.create_task(watch)
            sensing = tasks.create_task(fleet.play(self._scenario.fleets, field))
            found = await self._parts()
            seconds = time.monotonic() - begin
            self._reports.suffice.set()
            watching.cancel()
            if found is not None:
                sensing.cancel()
            else:
                await asyncio.wait((sensing,), timeout=SETTLE_SECONDS_MAX)
                if not sensing.done():
                    raise RunError(f"{self._ledger.counts.open} events are not acked within {SETTLE_SECONDS_MAX:g} s")
        return seconds, found

    async def _parts(self) -> Verdict | None:
        """Inject the faults of one part after the other, with checkpoints between; return a verdict with a fault."""
        part, start = self._options.checkpoint_seconds, 0.0
        while True:
            self._display.phase(f"part {self._checkpoints + 1}: sensors report, services fail")
            begin, left = time.monotonic(), min(part, self._options.seconds - start)
            own = [replace(one, at=one.at - start) for one in self._scenario.faults if 0 <= one.at - start < part]
            await faults.play(own, self._services, self._ledger, self._display, self._reports, self._is_stopped)
            await _until(self._is_stopped, left - (time.monotonic() - begin))
            start += part
            if self._is_stopped() or start >= self._options.seconds - part / 2:
                return None
            async with self._reports.paused():
                found = await self._judge()
            self._display.fact(f"checkpoint {self._checkpoints}: {_figures(found)}")
            if found.faults:
                return found

    async def _judge(self) -> Verdict:
        """Judge everything so far, once nothing is on its way."""
        self._display.phase("waiting for the last events")
        if not await _until(lambda: self._is_quiet() and not self._ledger.counts.open, SETTLE_SECONDS_MAX):
            raise RunError(
                f"not within {SETTLE_SECONDS_MAX:g} s: {self._ledger.counts.open} events are not acked, "
                f"or a service does not run: {', '.join(sorted(self._services.down))}"
            )
        await faults.note_receipts_ahead(self._services, self._ledger, self._display)
        statuses = await wait_for_receipts(
            self._services.gateways, self._display, standstill_seconds_max=SETTLE_SECONDS_MAX
        )
        self._checkpoints += 1
        file = self._ledger.path
        verdict = await asyncio.to_thread(judge_local, file, file.parent, self._services, statuses)
        found = replace(verdict, unreceipted=sum(status.outbox for status in statuses))
        return with_repeated_records(found) if self._options.delivery == EXACTLY_ONCE else found

    def _is_quiet(self) -> bool:
        return not self._services.down and self._services.job.reads


def with_repeated_records(verdict: Verdict) -> Verdict:
    """Return the verdict with repeated records as doubled: exactly once, the topic has no event twice either."""
    return replace(verdict, doubled=verdict.doubled + verdict.repeats)


async def _until(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait until the condition holds; return whether it did within the time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(POLL_SECONDS)
    return True


def _faults_of(ledger_file: Path) -> Mapping[str, int]:
    """Return the number of faults of each service and kind, from the ledger."""
    counted: Counter[str] = Counter()
    for line in ledgers.read(ledger_file):
        if isinstance(line, Happened):
            what = "clock stepped" if line.what.startswith("clock ") else line.what
            if what in KINDS:
                counted[f"{line.part} {what}"] += 1
    return dict(sorted(counted.items()))


def _figures(found: Verdict) -> str:
    return f"{found.acked:,} events acked, {found.rows or 0:,} rows, faults: {found.faults or 'none'}"


SAMPLE_SECONDS = 15.0
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
BLOCK_BYTES = 512
SHARE = 0.1
"""The share of the samples from which start, middle and end are computed."""
POINTS_MAX = 200

Sample = Mapping[str, int]


class Gauges:
    """The samples of a run; each maps names such as `agent memory` to a value in bytes, or a count of descriptors."""

    def __init__(self, services: Services) -> None:
        self.samples: list[Sample] = []
        self._services = services
        self._begin = time.monotonic()

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            self.samples.append(await asyncio.to_thread(lambda: dict(self._values())))
            await asyncio.sleep(SAMPLE_SECONDS)

    def _values(self) -> Iterator[tuple[str, int]]:
        services = self._services
        yield "seconds", round(time.monotonic() - self._begin)
        for name, service in services.by_name.items():
            if service.process.alive:
                memory, files = _usage(session.members(service.process.pid))
                if files:
                    yield f"{name} memory", memory
                    yield f"{name} files", files
        for name, gateway in services.agents.items():
            yield f"{name} disk", _size(gateway.state)
        yield "checkpoint disk", _size(services.job.checkpoint)
        yield "table disk", _size(services.job.table)
        yield "kafka disk", _size(services.broker.data_folder)


def summary(samples: Sequence[Sample]) -> dict[str, tuple[int, int, int]]:
    """Return the medians of each value at the start, in the middle, and at the end; of values with one at least."""
    names = sorted({name for sample in samples for name in sample} - {"seconds"})
    found = {}
    for name in names:
        values = [sample[name] for sample in samples if name in sample]
        size = max(1, round(SHARE * len(values)))
        middle = (len(values) - size) // 2
        parts = (values[:size], values[middle : middle + size], values[-size:])
        start, halfway, end = (round(median(part)) for part in parts)
        found[name] = (start, halfway, end)
    return found


def thinned(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Return POINTS_MAX samples at most, evenly chosen."""
    every = -(-len(samples) // POINTS_MAX) or 1
    return samples[::every]


def _usage(pids: Sequence[int]) -> tuple[int, int]:
    """Return the resident memory in bytes and the number of file descriptors of processes."""
    memory = files = 0
    for pid in pids:
        try:
            memory += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES
            files += sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
    return memory, files


def _size(folder: Path) -> int:
    """Return the space on disk in bytes of a folder's files, some of which may vanish meanwhile."""
    total = 0
    for path, _, files in os.walk(folder):
        for name in files:
            try:
                total += (Path(path) / name).lstat().st_blocks * BLOCK_BYTES
            except FileNotFoundError:
                continue
    return total
