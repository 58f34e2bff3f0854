"""One run: reach or start the gateway, let the sensors report, play the faults, and judge what became of the events."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Coroutine, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from random import SystemRandom
from typing import TypeVar

from simulators import ledger as ledgers
from simulators.evidence import delta, postgres, topic
from simulators.evidence.receipts import behind
from simulators.ledger import Ledger
from simulators.oracle.casebook import Casebook
from simulators.oracle.findings import Scope
from simulators.oracle.history import with_histories
from simulators.oracle.judge import judge
from simulators.oracle.verdict import Verdict
from simulators.report import command as report
from simulators.report.command import ARRIVALS_FILE, REPORT_FILE, VERDICT_FILE
from simulators.run import faults, folder, play
from simulators.run.display import Display
from simulators.run.error import RunError
from simulators.run.gateway import Gateway, GatewayStatus
from simulators.run.options import Options, Place
from simulators.run.parts import Parts, started
from simulators.run.play import Stop
from simulators.voice import RUNS, devices_of

LOOK_SECONDS = 0.5
RECEIPT_SECONDS_MAX = 180.0
INTERRUPTED_SECONDS_MAX = 20.0

T = TypeVar("T")


async def run(options: Options, display: Display, stop: Stop) -> Verdict:
    """Play one run in its folder, and leave ledger and verdict there; raise RunError or PartError without a verdict."""
    home = options.folder.absolute()
    folder.empty(home)
    options.ledger_file.parent.mkdir(parents=True, exist_ok=True)
    if options.ledger_file.exists():
        raise RunError(f"{options.ledger_file} is the truth of another run: name another --ledger, or move it away")
    verdict = await (_run_here if options.local else _run_there)(options, home, display, stop)
    (home / VERDICT_FILE).write_text(json.dumps(verdict.document(), indent=2) + "\n")
    display.phase("writing the report")
    await asyncio.to_thread(report.build, options.ledger_file, home, home / REPORT_FILE)
    return verdict


async def _run_there(options: Options, home: Path, display: Display, stop: Stop) -> Verdict:
    """Test a gateway in the field: only what it says to its sensors can be seen, and what a table holds."""
    coap = options.targets.get("coap")
    http = options.targets.get("http")
    number = SystemRandom().randrange(1, RUNS)
    with Ledger(options.ledger_file, play.clock) as ledger:
        _begin(options, ledger, devices_of(number))
        links = play.link_to(
            options.scenario,
            options.seed,
            [coap] if coap else [],
            http,
            options.targets.get("mqtt"),
            options.http_token,
        )
        async with links as (ways, radio), asyncio.TaskGroup() as tasks:
            display.phase(f"{options.scenario.name}: sensors report to {_targets(options)}")
            statuses = [http] if http else []
            await play.note_before(ledger, statuses)
            watching = tasks.create_task(play.watch(options.scenario, ledger, statuses, radio, display))
            await play.sensors(options.scenario, options.seed, ledger, ways, stop, number)
            watching.cancel()
    display.phase("holding what is there against the ledger")
    return await asyncio.to_thread(judge_there, options.ledger_file, options.place, not stop.asked.is_set())


async def _run_here(options: Options, home: Path, display: Display, stop: Stop) -> Verdict:
    """Test all parts on this machine, with faults in them."""
    scenario = options.scenario
    async with started(scenario, home, options.seams, display) as parts:
        with Ledger(options.ledger_file, play.clock) as ledger:
            _begin(options, ledger)
            await watched(parts, _play_here(options, parts, ledger, display, stop))
            statuses = await watched(parts, receipts(parts.gateways, display, stop))
            accepted, copies = (sum(getattr(one, name) for one in statuses) for name in ("accepted", "duplicates"))
            ledger.sample({"accepted": accepted, "copies": copies})
            await watched(parts, faults.note_receipts_ahead(parts, ledger, display))
            if options.seams.delivery == "at-most-once":
                await watched(parts, _caught_up(parts, display))
        display.phase("stopping the job and the agent")
        await asyncio.to_thread(parts.stop)
        display.phase("reading Kafka and the table, and holding them against the ledger")
        complete = not stop.asked.is_set()
        return await asyncio.to_thread(_judge_here, options.ledger_file, home, parts, statuses, complete)


async def _play_here(options: Options, parts: Parts, ledger: Ledger, display: Display, stop: Stop) -> None:
    scenario = options.scenario
    first = parts.gateways[0]
    coap = [gateway.address for gateway in parts.gateways]
    mqtt = None if parts.mosquitto is None else ("127.0.0.1", parts.mosquitto.port)
    links = play.link_to(scenario, options.seed, coap, first.http_address, mqtt, None, parts.source)
    async with links as (ways, radio), asyncio.TaskGroup() as tasks:
        sensors = sum(plan.sensors for plan in scenario.fleets)
        display.phase(
            f"{scenario.name}: {sensors:,} sensors report for {scenario.seconds:g} s, and bring home what is left"
        )
        statuses = [gateway.http_address for gateway in parts.gateways]
        watching = tasks.create_task(play.watch(scenario, ledger, statuses, radio, display))
        happening = tasks.create_task(faults.play(scenario.faults, parts, ledger, display))
        await play.sensors(scenario, options.seed, ledger, ways, stop)
        if not stop.asked.is_set():
            await happening
        happening.cancel()
        watching.cancel()


async def receipts(gateways: Sequence[Gateway], display: Display, stop: Stop | None = None) -> Sequence[GatewayStatus]:
    """Wait until every event has its receipt, or the time is over; give what the gateways say then."""
    display.phase("waiting for the last receipts")
    begin = time.monotonic()
    while True:
        statuses = [await asyncio.to_thread(gateway.status) for gateway in gateways]
        outbox = sum(status.outbox for status in statuses)
        accepted = sum(status.accepted for status in statuses)
        display.count(accepted - outbox, accepted, f"{outbox:,} events without a receipt")
        limit = INTERRUPTED_SECONDS_MAX if stop is not None and stop.asked.is_set() else RECEIPT_SECONDS_MAX
        if outbox == 0 or time.monotonic() - begin > limit:
            return statuses
        await asyncio.sleep(LOOK_SECONDS)


async def _caught_up(parts: Parts, display: Display) -> None:
    """Wait until the table has what is in the topic: where there are no receipts, nobody else tells."""
    display.phase("waiting for the table")
    deadline = time.monotonic() + RECEIPT_SECONDS_MAX
    while time.monotonic() < deadline:
        if not await asyncio.to_thread(behind, parts.broker.bootstrap_servers, parts.job.table):
            return
        await asyncio.sleep(LOOK_SECONDS)


async def watched(parts: Parts, work: Coroutine[None, None, T]) -> T:
    """Do the work, unless a part ends by itself: then say which."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            if (dead := parts.dead()) is not None:
                raise RunError(dead)
            await asyncio.wait((task,), timeout=LOOK_SECONDS)
        return task.result()
    finally:
        task.cancel()
        # What it holds open must be closed before the parts and the ledger are.
        await asyncio.gather(task, return_exceptions=True)


def judge_there(ledger_file: Path, place: Place, complete: bool) -> Verdict:
    """Judge a ledger by what stands at the end of the path; without a place, the sensors' side alone.

    Only the run's own devices are looked at: the table may be one in use.
    """
    with Casebook() as casebook:
        casebook.add_ledger(ledgers.read(ledger_file))
        if place.table is not None:
            casebook.add_rows(delta.read(place.table, casebook.devices))
        elif place.postgres is not None:
            casebook.add_rows(postgres.read(place.postgres, place.postgres_table, casebook.devices))
        elif place.kafka is not None:
            casebook.add_topic_as_rows(topic.read(place.kafka, place.topic, casebook.devices))
        has_table = bool(place.table or place.postgres or place.kafka)
        verdict = judge(casebook, Scope(has_table=has_table, complete=complete, settled=complete))
        return with_histories(verdict, casebook, ledger_file)


def _judge_here(
    ledger_file: Path, home: Path, parts: Parts, statuses: Sequence[GatewayStatus], complete: bool
) -> Verdict:
    with Casebook() as casebook:
        casebook.add_ledger(ledgers.read(ledger_file))
        casebook.add_records(topic.read(parts.broker.bootstrap_servers))
        casebook.add_rows(delta.read(parts.job.table))
        arrivals = {"kafka": casebook.arrivals(), "table": delta.read_commits(parts.job.table)}
        (home / ARRIVALS_FILE).write_text(json.dumps(arrivals) + "\n")
        unreceipted = sum(status.outbox for status in statuses)
        scope = Scope(
            gateways=len(parts.gateways),
            complete=complete,
            settled=complete or unreceipted == 0,
            # What Zigbee2MQTT publishes may be in Kafka before our witness has heard it.
            one_clock=parts.zigbee2mqtt is None,
        )
        verdict = judge(casebook, scope)
        verdict = replace(verdict, unreceipted=unreceipted if complete else 0)
        return with_histories(verdict, casebook, ledger_file, parts.gateways)


def _begin(options: Options, ledger: Ledger, devices: str = "") -> None:
    ledger.begin(
        {
            "scenario": asdict(options.scenario),
            "seed": options.seed,
            "targets": "all parts on one machine" if options.local else _targets(options),
            "delivery": options.seams.delivery,
            "devices": devices,
        }
    )


def _targets(options: Options) -> str:
    return ", ".join(f"{scheme}://{host}:{port}" for scheme, (host, port) in options.targets.items())
