"""One demo run: start the services, run sensors and faults, wait for the receipts, judge the evidence."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from simulators import fleet
from simulators import ledger as ledgers
from simulators.arguments import LEDGER_FILE
from simulators.demo.faults import DemoFaults
from simulators.demo.options import (
    ANSWER_LOSS,
    EQUAL_READINGS_SHARE_MIN,
    REQUEST_LOSS,
    TIMING,
    DemoOptions,
    scenario,
)
from simulators.demo.summary import Summary
from simulators.display import Display
from simulators.errors import RunError
from simulators.evidence import delta, topic
from simulators.evidence.topic import Topic
from simulators.ledger import Ledger, Line, Reported
from simulators.oracle.evidence_database import EvidenceDatabase
from simulators.oracle.findings import Scope
from simulators.oracle.judge import judge
from simulators.oracle.statement import canonical
from simulators.oracle.verdict import Verdict
from simulators.run import folder
from simulators.run.faults import note_receipts_ahead
from simulators.run.gateway import GatewayStatus
from simulators.run.play import clock, link_to
from simulators.run.run import watched
from simulators.run.services import Overrides, Services, started
from simulators.run.supervisor import supervised
from simulators.run.waiting import wait_for_job, wait_for_receipts
from simulators.sensors.field import Field

POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The result of a demo run."""

    summary: Summary
    ledger: Path
    first_times: list[int]
    """When each event first arrived in Kafka, by the broker's clock, in milliseconds since 1970 UTC."""
    commits: list[tuple[int, int]]
    """The table's commits: time in milliseconds since 1970 UTC, and the number of rows added."""


async def run(options: DemoOptions, display: Display) -> DemoResult:
    """Play one run in its folder; raise RunError or ServiceError where there is no verdict."""
    begin = time.monotonic()
    home = options.folder.absolute()
    folder.empty(home)
    ledger_file = home / LEDGER_FILE
    async with started(scenario(options.sensors), home, Overrides(), display) as services:
        with Ledger(ledger_file, clock) as ledger:
            faults = DemoFaults(services, ledger, options.seed, clock, display)
            # A job that Kafka has not answered for long ends, and its unit starts it again.
            async with supervised(services, {"job"}, ledger, display) as supervisor:
                await watched(services, _play(options, services, ledger, faults, display))
                await watched(services, wait_for_job(services))
                (status,) = await watched(services, wait_for_receipts(services.gateways, display))
                await watched(services, note_receipts_ahead(services, ledger, display))
        display.phase("stopping the job and the agent")
        await asyncio.to_thread(services.stop)
        display.phase("reading Kafka and the table, and comparing them with the ledger")
        equal_readings = _equal_readings(ledgers.read(ledger_file))
        if equal_readings < EQUAL_READINGS_SHARE_MIN * ledger.counts.events:
            raise RunError(f"only {equal_readings} of {ledger.counts.events} readings are equal to an earlier one")
        with EvidenceDatabase() as evidence:
            evidence.add_ledger(ledgers.read(ledger_file))
            evidence.add_records(topic.read(Topic(services.broker.bootstrap_servers)))
            evidence.add_rows(delta.read(services.job.table))
            verdict = judge(evidence, Scope(one_clock=True, settled=status.outbox == 0))
            first_times = evidence.first_times()
    summary = Summary(
        verdict=complete(verdict, status),
        requests=ledger.counts.transmissions,
        accepted=status.accepted,
        duplicates=status.duplicates,
        equal_readings=equal_readings,
        seconds=round(time.monotonic() - begin, 1),
        sensors=options.sensors,
        seed=options.seed,
        kills=tuple(faults.kills),
        outages=tuple(faults.outages),
        job_ends=len(supervisor.ends),
    )
    return DemoResult(summary, ledger_file, first_times, delta.read_commits(services.job.table))


async def _play(options: DemoOptions, services: Services, ledger: Ledger, faults: DemoFaults, display: Display) -> None:
    begin = time.monotonic()
    played = scenario(options.sensors)
    display.phase(
        f"{options.sensors:,} sensors report over a radio that loses {REQUEST_LOSS:.0%} and {ANSWER_LOSS:.0%}"
    )
    links = link_to(played, options.seed, [services.gateways[0].address], None, None, None)
    async with links as (targets, _), asyncio.TaskGroup() as tasks:
        field = Field(
            ledger=ledger,
            seed=options.seed,
            targets=targets,
            timing=TIMING,
            is_over=lambda _: (
                ledger.counts.events >= options.events_min
                and time.monotonic() - begin >= options.seconds_min
                and faults.over
            ),
            clock=clock,
        )
        showing = tasks.create_task(_show(ledger, options.events_min, display), name="display")
        tasks.create_task(faults.play(options.kills), name="faults")
        await fleet.play(played.fleets, field)
        showing.cancel()


async def _show(ledger: Ledger, events_min: int, display: Display) -> None:
    while True:
        display.load(ledger.counts, events_min)
        await asyncio.sleep(POLL_SECONDS)


def _equal_readings(lines: Iterable[Line]) -> int:
    """Return the number of events with the type and data of an earlier event of the same sensor."""
    repeated = [
        (line.event.device, line.event.type, canonical(line.event.data)) for line in lines if isinstance(line, Reported)
    ]
    return len(repeated) - len(set(repeated))


def complete(verdict: Verdict, status: GatewayStatus) -> Verdict:
    """Return the verdict with missing ACKs and receipts: in the demo every event must have both."""
    return replace(verdict, unacked=verdict.events - verdict.acked, unreceipted=status.outbox)
