"""One run: start or reach the gateway, run sensors and faults, and judge the evidence."""

import asyncio
import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from importlib import metadata
from pathlib import Path
from random import SystemRandom

from simulators import ledger as ledgers
from simulators.display import Display
from simulators.errors import RunError
from simulators.evidence import delta, topic
from simulators.evidence.topic import RECORDS_FILE, Topic, saving
from simulators.judge.remote import judge_remote_run, note_topic, wait_for_rows
from simulators.ledger import Ledger
from simulators.oracle.evidence_database import EvidenceDatabase
from simulators.oracle.history import with_histories
from simulators.oracle.judge import judge
from simulators.oracle.verdict import Scope, Verdict
from simulators.payloads import RUNS, devices_of
from simulators.report import command as report
from simulators.report.command import ARRIVALS_FILE, REPORT_FILE, VERDICT_FILE
from simulators.run import faults, play
from simulators.run.gateway import GatewayStatus
from simulators.run.options import RunOptions
from simulators.run.play import Reports
from simulators.run.services import Services, empty_folder, started
from simulators.run.supervisor import supervised
from simulators.run.waiting import wait_for_job, wait_for_receipts
from simulators.scenario import SensorKind
from simulators.sensors.zigbee_network import DEVICES_TOPIC, require_no_network


async def run(options: RunOptions, display: Display, stop: asyncio.Event) -> Verdict:
    """Play one run in its folder, which keeps ledger and verdict.

    Raise RunError or ServiceError, or a group of them, where there is no verdict.
    """
    home = options.folder.absolute()
    empty_folder(home)
    options.ledger_file.parent.mkdir(parents=True, exist_ok=True)
    if options.ledger_file.exists():
        raise RunError(f"{options.ledger_file} is the ledger of another run: name another --ledger, or move it away")
    verdict = await (_run_local(options, home, display, stop) if options.local else _run_remote(options, display, stop))
    (home / VERDICT_FILE).write_text(json.dumps(verdict.document(), indent=2) + "\n")
    display.phase("writing the report")
    await asyncio.to_thread(report.build, options.ledger_file, home, home / REPORT_FILE)
    return verdict


async def _run_remote(options: RunOptions, display: Display, stop: asyncio.Event) -> Verdict:
    """Test a remote gateway, of which only the answers to sensors and the sink are visible."""
    coap = options.targets.get("coap")
    http = options.targets.get("http")
    number = SystemRandom().randrange(1, RUNS)
    has_zigbee = any(plan.kind is SensorKind.ZIGBEE for plan in options.scenario.fleets)
    mqtt = options.targets.get("mqtt")
    if mqtt is not None and has_zigbee:
        await asyncio.to_thread(require_no_network, mqtt)
    noted = await asyncio.to_thread(note_topic, options.sink)
    with Ledger(options.ledger_file, play.clock) as ledger:
        _begin(options, ledger, {"devices": devices_of(number), **noted})
        links = play.link_to(options.scenario, options.seed, [coap] if coap else [], http, mqtt, options.http_token)
        async with links as targets, asyncio.TaskGroup() as tasks:
            display.phase(f"{options.scenario.name}: sensors report to {target_urls(options)}")
            if (erasure := options.sink.erasure(devices_of(number))) is not None:
                display.fact("their events stay in the table; this statement erases them (docs/table.md, Procedures):")
                display.fact(erasure)
            if mqtt is not None and has_zigbee:
                display.fact("their list stays on the MQTT broker until a Zigbee2MQTT starts; this command removes it:")
                display.fact(f"mosquitto_pub -h {mqtt[0]} -p {mqtt[1]} -t {DEVICES_TOPIC} -r -n")
            statuses = [http] if http else []
            await play.note_before(ledger, statuses)
            watching = tasks.create_task(play.watch(options.scenario, ledger, statuses, display))
            await play.sensors(options.scenario, options.seed, ledger, targets, stop, number)
            watching.cancel()
        _end(ledger, stop)
    stands = await wait_for_rows(options.ledger_file, options.sink, display, stop.is_set)
    display.phase("comparing the evidence with the ledger")
    return await asyncio.to_thread(judge_remote_run, options.ledger_file, options.sink, arriving=not stands)


async def _run_local(options: RunOptions, home: Path, display: Display, stop: asyncio.Event) -> Verdict:
    """Test all services on this machine, with faults."""
    scenario = options.scenario
    async with started(scenario, home, options.overrides, display) as services:
        with Ledger(options.ledger_file, play.clock) as ledger:
            _begin(options, ledger, {"gateways": len(services.gateways)})
            # A job that Kafka has not answered for long ends, and its unit starts it again.
            async with supervised(services, {"job"}, ledger, display):
                await _play_local(options, services, ledger, display, stop)
                await wait_for_job(services, stop.is_set)
                statuses = await wait_for_receipts(services.gateways, display, stop.is_set)
                names = ("accepted", "duplicates")
                ledger.sample({name: sum(getattr(one, name) for one in statuses) for name in names})
                await faults.note_receipts_ahead(services, ledger, display)
            _end(ledger, stop)
        display.phase("stopping the job and the agent")
        await asyncio.to_thread(services.stop)
        display.phase("reading Kafka and the table, and comparing them with the ledger")
        return await asyncio.to_thread(judge_local, options.ledger_file, home, services, statuses)


async def _play_local(
    options: RunOptions, services: Services, ledger: Ledger, display: Display, stop: asyncio.Event
) -> None:
    scenario = options.scenario
    first = services.gateways[0]
    coap = [gateway.address for gateway in services.gateways]
    mqtt = None if services.mosquitto is None else ("127.0.0.1", services.mosquitto.port)
    links = play.link_to(scenario, options.seed, coap, first.http_address, mqtt, None)
    async with links as targets, asyncio.TaskGroup() as tasks:
        sensors = sum(plan.sensors for plan in scenario.fleets)
        display.phase(f"{scenario.name}: {sensors:,} sensors report for {scenario.seconds:g} s, then settle")
        statuses = [gateway.http_address for gateway in services.gateways]
        watching = tasks.create_task(play.watch(scenario, ledger, statuses, display))
        reports = Reports()

        async def happen() -> None:
            await faults.play(scenario.faults, services, ledger, display, reports)
            reports.suffice.set()

        happening = tasks.create_task(happen())
        await play.sensors(scenario, options.seed, ledger, targets, stop, reports=reports)
        if not stop.is_set():
            await happening
        happening.cancel()
        watching.cancel()


def judge_local(ledger_file: Path, home: Path, services: Services, statuses: Sequence[GatewayStatus]) -> Verdict:
    """Judge a local run by its ledger, Kafka and the table; write the arrivals into its folder."""
    with EvidenceDatabase() as evidence:
        evidence.add_ledger(ledgers.read(ledger_file))
        records = topic.read(Topic(services.broker.bootstrap_servers))
        evidence.add_records(saving(records, home / RECORDS_FILE))
        evidence.add_rows(delta.read(services.job.table))
        arrivals = {"kafka": evidence.arrivals(), "table": delta.read_commits(services.job.table)}
        (home / ARRIVALS_FILE).write_text(json.dumps(arrivals) + "\n")
        unreceipted = sum(status.outbox for status in statuses)
        scope = Scope(
            gateways=len(services.gateways), complete=evidence.ended, settled=unreceipted == 0, one_clock=True
        )
        verdict = judge(evidence, scope)
        verdict = replace(verdict, unreceipted=unreceipted if evidence.ended else 0)
        return with_histories(verdict, evidence, ledger_file)


def _begin(options: RunOptions, ledger: Ledger, more: Mapping[str, object]) -> None:
    ledger.begin(
        {
            "scenario": asdict(options.scenario),
            "seed": options.seed,
            "targets": "all services on one machine" if options.local else target_urls(options),
            "delivery": options.overrides.delivery,
            "version": f"oncegate {metadata.version('oncegate')}",
            "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors",
            **more,
        }
    )


def _end(ledger: Ledger, stop: asyncio.Event) -> None:
    if not stop.is_set():
        ledger.end()


def target_urls(options: RunOptions) -> str:
    """Return the targets as URLs."""
    return ", ".join(
        f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}" for scheme, (host, port) in options.targets.items()
    )
