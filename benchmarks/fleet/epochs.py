"""The job and the audit with the labels of a whole fleet: each gateway an epoch, each event another device.

The records are a gateway's: an event that begins the epoch, and readings. The job writes the table and commits the
receipts; the audit accounts for all of it, and then for another reading of each gateway whose predecessor is missing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.cloud.runs import DRIVER_MEGABYTES, ROOT, RUN_SECONDS_MAX, Bench, cpu_seconds
from benchmarks.cloud.topic import send
from benchmarks.report import Figure, progress
from contract.event import Event, Label, gateway_device
from contract.fingerprint import fingerprint
from contract.record import ClockTrust, Record, Shared, encode_record, encode_tail
from simulators.services.error import ServiceError
from simulators.services.kafka.broker import Broker
from simulators.services.process import Process
from simulators.services.spark import SparkOptions, submit

AUDIT: Final = ROOT / "cloud" / "audit.py"
DEVICES: Final = 10_000_000
READINGS: Final = 4
TOPIC: Final = "fleet"
BATCH: Final = 400_000
_LABELS: Final = re.compile(r"^labels: (.*); read now", re.MULTILINE)


def records(gateways: int, first: int, count: int, time_ms: int) -> Iterator[Record]:
    """Yield for each gateway the events with the labels from `first` on; label 1 is the epoch's beginning."""
    for sequence in range(first, first + count):
        for number in range(gateways):
            gateway, epoch = f"gw-{number:06}", f"{number:016x}"
            if sequence == 1:
                event, via, shared = Event(gateway_device(gateway), "gateway.started", epoch), "gateway", Shared.LABEL
            else:
                device = f"urn:dev:mac:{(number * 7919 + sequence) % DEVICES:016x}"
                event, via, shared = Event(device, id=sequence, time=time_ms, data={"t": 21.5}), "coap", Shared.TIME
            tail = encode_tail(event, time_ms, via)
            label = Label(epoch, sequence)
            yield encode_record(
                fingerprint(event), gateway, label, tail, ClockTrust.TRUSTED, shared, event.time or time_ms
            )


def figures(folder: Path, gateways: int, partitions: int = 4) -> Iterator[Figure]:
    """Yield the figures of the job and of two audits."""
    with Broker(folder / "kafka") as broker:
        bench = Bench(broker, TOPIC, partitions, 0, BATCH, folder)
        broker.create_topics(TOPIC, partitions=partitions)
        now = time.time_ns() // 1_000_000
        sent = send(broker.bootstrap_servers, TOPIC, records(gateways, 1, 1 + READINGS, now))
        timing = bench.job(folder, 0, records=sent)
        name = f"the job, {sent:,} events of {gateways:,} gateways"
        size = sum(file.stat().st_size for file in (folder / "events").rglob("*.parquet"))
        details = {"cpu_seconds": timing.cpu_seconds, "bytes_per_row": size / sent}
        progress(f"{name}: {timing.rate:,.0f}/s")
        yield Figure(name, timing.rate, "records/s", details=details)
        yield _audited(bench, f"the audit of {gateways:,} epochs", folder)
        # One label of each epoch does not arrive.
        again = send(broker.bootstrap_servers, TOPIC, records(gateways, READINGS + 3, 1, now))
        bench.job(folder, sent, records=again)
        yield _audited(bench, f"the next audit, {gateways:,} labels missing", folder)


def _audited(bench: Bench, name: str, folder: Path) -> Figure:
    """Run an audit in a fresh process."""
    ends = ("--bootstrap-servers", bench.broker.bootstrap_servers, "--topic", TOPIC, "--group", f"{TOPIC}-cloud")
    places = ("--table", str(folder / "events"), "--output", str(folder / "audit"), "--grace", "0s")
    own = folder / f"audit-{time.monotonic_ns()}"
    own.mkdir()
    started = time.monotonic()
    process = submit(AUDIT, (*ends, *places), own, SparkOptions(driver_megabytes=DRIVER_MEGABYTES))
    used, peak = 0.0, 0
    while process.alive:
        used, peak = cpu_seconds(process) or used, max(peak, _resident(process))
        if time.monotonic() - started > RUN_SECONDS_MAX:
            process.kill()
            raise ServiceError(f"{name}: not done after {RUN_SECONDS_MAX:g} s")
        time.sleep(0.5)
    seconds, labels = time.monotonic() - started, _LABELS.search(process.log())
    if labels is None:
        raise ServiceError(f"{name}: failed\n{process.log_tail()}")
    details = {"cpu_seconds": used, "memory_bytes": peak, "labels": labels[1]}
    progress(f"{name}: {seconds:.0f} s, {details}")
    return Figure(name, seconds, "s", details=details)


def _resident(process: Process) -> int:
    """Return the memory of a process's JVM, 0 where it has ended."""
    try:
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    except FileNotFoundError:
        return 0
    return 1024 * next((int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)
