"""One run: start the parts, let the sensors report, play the faults, wait for the receipts, hold all to the truth."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from simulators import ledger as ledgers
from simulators import oracle, table
from simulators.demo import topic
from simulators.demo.display import Display
from simulators.demo.error import DemoError
from simulators.demo.faults import Faults, Parts
from simulators.demo.gateway import Gateway, GatewayStatus
from simulators.demo.job import Job
from simulators.demo.options import (
    ANSWER_LOSS,
    DELAY_SECONDS_MAX,
    DELAY_SECONDS_MIN,
    EQUAL_READINGS_SHARE_MIN,
    EVENTS_PER_SECOND,
    REQUEST_LOSS,
    SENSORS,
    TIMING,
    Options,
)
from simulators.demo.summary import Summary
from simulators.demo.topic import TopicContents
from simulators.fleet import Fleet, FleetPlan
from simulators.ledger import Ledger
from simulators.link import Link, weather
from simulators.oracle import Verdict
from simulators.parts.kafka import Broker

LOOK_SECONDS = 0.5
RECEIPT_SECONDS_MAX = 120.0

_MARKER = ".oncegate-demo"
"""Names a folder as one that a run may empty."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a run leaves to be looked at."""

    summary: Summary
    verdict: Verdict
    ledger: Path
    topic: TopicContents
    commits: list[tuple[int, int]]
    """When the table was committed to, in milliseconds, and how many rows that added."""


async def run(options: Options, display: Display) -> Evidence:
    """Play one run in its folder; raise DemoError or PartError where it cannot come to a verdict."""
    begin = time.monotonic()
    folder = options.folder.absolute()
    _empty(folder)
    ledger_file = folder / "ledger.jsonl"
    async with _parts(folder, display) as parts:
        with Ledger(ledger_file, clock) as ledger:
            faults = Faults(parts, ledger, options.seed, clock, display)
            await _watched(parts, _play(options, parts, ledger, faults, display))
            status = await _watched(parts, _receipts(parts.gateway, display))
        display.phase("stopping the job and the agent")
        await asyncio.to_thread(_stop, parts)
        display.phase("reading Kafka and the table, and holding them against the ledger")
        contents = await asyncio.to_thread(topic.read, parts.broker.bootstrap_servers)
    verdict = oracle.audit(ledgers.read(ledger_file), table.read(parts.job.table))
    if verdict.equal_readings < EQUAL_READINGS_SHARE_MIN * verdict.events:
        raise DemoError(f"only {verdict.equal_readings} of {verdict.events} readings are equal to an earlier one")
    summary = _summary(options, ledger, faults, status, verdict, contents.records, time.monotonic() - begin)
    return Evidence(summary, verdict, ledger_file, contents, table.read_commits(parts.job.table))


def clock() -> int:
    """Tell the time in milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000


def _empty(folder: Path) -> None:
    """Empty the folder; one that holds something else than an earlier run is refused."""
    if folder.exists():
        if any(folder.iterdir()) and not (folder / _MARKER).exists():
            raise DemoError(f"{folder} holds something else than an earlier run: choose another --folder")
        shutil.rmtree(folder)
    (folder / "logs").mkdir(parents=True)
    (folder / _MARKER).touch()


@asynccontextmanager
async def _parts(folder: Path, display: Display) -> AsyncIterator[Parts]:
    broker = Broker(folder / "kafka")
    logs = folder / "logs"
    (logs / "kafka.log").symlink_to(broker.log_file)
    try:
        display.phase("starting Kafka")
        await asyncio.to_thread(broker.start)
        await asyncio.to_thread(broker.create_topics)
        gateway = Gateway(folder / "gateway", logs / "agent.log", broker.bootstrap_servers)
        job = Job(folder / "cloud", logs / "job.log", broker.bootstrap_servers)
        try:
            display.phase("starting the Spark job and the agent")
            await asyncio.to_thread(job.start)
            await asyncio.to_thread(gateway.start)
            await asyncio.to_thread(job.wait)
            yield Parts(broker, gateway, job)
        finally:
            gateway.process.kill()
            job.process.kill()
    finally:
        broker.kill()


async def _play(options: Options, parts: Parts, ledger: Ledger, faults: Faults, display: Display) -> None:
    sky = weather(REQUEST_LOSS, ANSWER_LOSS, DELAY_SECONDS_MIN, DELAY_SECONDS_MAX)
    fleet = Fleet(FleetPlan(SENSORS, options.events_min, EVENTS_PER_SECOND, TIMING), ledger, options.seed, clock)
    display.phase(f"{SENSORS} sensors report over a radio that loses {REQUEST_LOSS:.0%} and {ANSWER_LOSS:.0%}")
    async with Link(parts.gateway.address, sky, options.seed) as link, asyncio.TaskGroup() as tasks:
        showing = tasks.create_task(_show(ledger, options.events_min, display), name="display")
        tasks.create_task(faults.play(options.kills), name="faults")
        await fleet.run(link.address, wanted=lambda: not faults.over)
        showing.cancel()


async def _show(ledger: Ledger, events_min: int, display: Display) -> None:
    while True:
        display.load(ledger.counts, events_min)
        await asyncio.sleep(LOOK_SECONDS)


async def _receipts(gateway: Gateway, display: Display) -> GatewayStatus:
    """Wait until every event has its receipt, or the time is over."""
    display.phase("waiting for the last receipts")
    deadline = time.monotonic() + RECEIPT_SECONDS_MAX
    while True:
        status = await asyncio.to_thread(gateway.status)
        display.count(status.accepted - status.outbox, status.accepted, f"{status.outbox:,} events without a receipt")
        if status.outbox == 0 or time.monotonic() > deadline:
            return status
        await asyncio.sleep(LOOK_SECONDS)


async def _watched(parts: Parts, work: Coroutine[None, None, T]) -> T:
    """Do the work, unless a part ends by itself: then say which."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            if (dead := parts.dead()) is not None:
                raise DemoError(dead)
            await asyncio.wait((task,), timeout=LOOK_SECONDS)
        return task.result()
    finally:
        task.cancel()
        # What it holds open must be closed before the parts and the ledger are.
        await asyncio.gather(task, return_exceptions=True)


def _stop(parts: Parts) -> None:
    parts.down |= {"job", "agent"}
    parts.job.process.terminate()
    parts.gateway.process.terminate()


def _summary(
    options: Options,
    ledger: Ledger,
    faults: Faults,
    status: GatewayStatus,
    verdict: Verdict,
    kafka_records: int,
    seconds: float,
) -> Summary:
    return Summary(
        events=verdict.events,
        transmissions=ledger.counts.transmissions,
        acked=verdict.acked,
        accepted=status.accepted,
        duplicates=status.duplicates,
        kafka_records=kafka_records,
        rows=verdict.rows,
        lost=verdict.lost,
        doubled=verdict.doubled,
        invented=verdict.invented,
        changed=verdict.changed,
        unreceipted=status.outbox,
        equal_readings=verdict.equal_readings,
        seconds=round(seconds, 1),
        seed=options.seed,
        kills=tuple(faults.kills),
        outages=tuple(faults.outages),
    )
