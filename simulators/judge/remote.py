"""Judges a run against a remote gateway by the ledger and the sink."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from simulators import ledger as ledgers
from simulators.display import Display
from simulators.judge.sink import Sink
from simulators.ledger import Begun, LedgerError
from simulators.oracle.evidence_database import EvidenceDatabase
from simulators.oracle.history import with_histories
from simulators.oracle.judge import judge
from simulators.oracle.verdict import Scope, Verdict

TOPIC = "topic"
"""The ledger's key for the end offsets of the topic at the start of the run."""
POLL_SECONDS = 2.0
WAIT_SECONDS_MAX = 900.0
"""A longer backlog can be judged later, by `oncegate-sim judge`."""


def note_topic(sink: Sink) -> dict[str, Any]:
    """Return the ledger's entry about the topic, so that records deleted since the start of the run are detected."""
    if sink.topic is None:
        return {}
    return {TOPIC: {"name": sink.topic.name, "ends": {str(key): end for key, end in sink.topic.ends().items()}}}


async def wait_for_rows(
    ledger_file: Path, sink: Sink, display: Display, is_stopped: Callable[[], bool] = lambda: False
) -> bool:
    """Wait until no more rows of the run arrive; return whether that happened.

    It proves no loss: an outage or a restart may last longer.
    """
    if not sink.named:
        return True
    run = await asyncio.to_thread(_read_run, ledger_file)
    display.phase(f"waiting until no row has arrived for {sink.standstill_seconds:g} s")

    async def count() -> int:
        counted = await asyncio.to_thread(_count, sink, run)
        display.count(0, 0, f"{counted:,} rows")
        return counted

    return await stands_still(count, sink.standstill_seconds, is_stopped)


def judge_remote_run(ledger_file: Path, sink: Sink, *, arriving: bool = False, final: bool = False) -> Verdict:
    """Judge a ledger by a sink; without one, only the sensors' side.

    A missing event is lost where a later one of its device has arrived, and where the judgement is `final`; otherwise
    it may still be in transit, and whether it is lost is unknown. `arriving` says that rows were still arriving.
    """
    sink.require()
    verdict = _judge(ledger_file, sink, Scope(arriving=arriving))
    if final or not verdict.lost:
        return verdict
    open_ = _judge(ledger_file, sink, Scope(settled=False, arriving=arriving))
    return replace(open_, unknown=max(open_.unknown, verdict.lost - open_.lost))


def _judge(ledger_file: Path, sink: Sink, scope: Scope) -> Verdict:
    """Judge within a scope; only the run's own devices are read, since the table may be in use."""
    with EvidenceDatabase() as evidence:
        evidence.add_ledger(ledgers.read(ledger_file))
        with sink.reading(evidence.devices, _begun(evidence.run, sink)) as opened:
            if sink.topic is not None:
                evidence.add_topic_as_rows(opened.records, opened.cut)
            else:
                evidence.add_rows(opened.records)
        scope = replace(
            scope,
            has_table=sink.named,
            of_topic=sink.topic is not None,
            gateways=int(evidence.run.get("gateways", 1)),
            complete=evidence.ended,
        )
        verdict = replace(judge(evidence, scope), malformed=opened.malformed)
        return with_histories(verdict, evidence, ledger_file)


def _count(sink: Sink, run: Mapping[str, Any]) -> int:
    with sink.reading(str(run.get("devices", "")), _begun(run, sink)) as opened:
        return sum(1 for _ in opened.records)


def _begun(run: Mapping[str, Any], sink: Sink) -> dict[int, int]:
    """Return the end offsets of the topic at the start of the run; none where they are unknown."""
    noted = run.get(TOPIC, {})
    if sink.topic is None or noted.get("name") != sink.topic.name:
        return {}
    return {int(partition): int(end) for partition, end in noted["ends"].items()}


def _read_run(ledger_file: Path) -> Mapping[str, Any]:
    """Return the parameters of the run from the ledger; raise LedgerError where it has none."""
    for line in ledgers.read(ledger_file):
        if isinstance(line, Begun):
            return line.run
    raise LedgerError(f"{ledger_file} describes no run")


@dataclass(frozen=True, slots=True)
class Clock:
    """The clock of a wait; tests replace it."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


REAL_CLOCK = Clock()


async def stands_still(
    count: Callable[[], Awaitable[int]],
    seconds: float,
    is_stopped: Callable[[], bool] = lambda: False,
    clock: Clock = REAL_CLOCK,
) -> bool:
    """Wait until the count has not changed for `seconds`; return whether that happened."""
    begin = clock.now()
    latest = await count()
    moved = clock.now()
    while (now := clock.now()) - moved < seconds:
        if is_stopped() or now - begin >= WAIT_SECONDS_MAX:
            return False
        await clock.sleep(min(POLL_SECONDS, seconds))
        if (counted := await count()) != latest:
            latest, moved = counted, clock.now()
    return True
