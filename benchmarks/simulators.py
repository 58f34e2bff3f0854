"""How many sensors one process can run, and how fast a ledger is checked.

    python -m benchmarks.simulators [--seconds N] [--events N]

The gateway of the first figure is a loop that acks everything, so that only the sensors are measured. The checked
ledger and its rows come from the sensors' payload generators; the cost of only reading them is measured, too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import resource
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path
from random import Random

from arro3.core import Array, DataType, Table
from deltalake import write_deltalake

from benchmarks.report import Figure, against, keep
from contract.event import Event
from simulators import fleet, ledger
from simulators.evidence import delta
from simulators.ledger import Ledger, Reported
from simulators.oracle.evidence_database import EvidenceDatabase
from simulators.oracle.judge import judge
from simulators.payloads import PayloadGenerator, device_profile
from simulators.scenario import FleetPlan, SensorKind
from simulators.sensors.endpoint import Timing
from simulators.sensors.field import Field, Targets

SENSORS = 10_000
EVENTS_PER_SECOND = 5_000.0
RATE_GOAL = 0.99 * EVENTS_PER_SECOND
CHECK_SECONDS_GOAL, CHECK_MEGABYTES_GOAL = 30.0, 500.0
SOCKET_BYTES = 8 << 20
ROWS_OF_A_FILE = 100_000


def main() -> None:
    """Measure the figures, print them, and write the JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulators", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long the sensors report (%(default)s)")
    parser.add_argument("--events", type=int, default=1_000_000, help="of the ledger that is checked (%(default)s)")
    given = parser.parse_args()
    figures = _in_own_process(_play, given.seconds)
    with tempfile.TemporaryDirectory() as folder:
        _in_own_process(_make, folder, given.events)
        figures += _in_own_process(_check, folder)
    keep("simulators", figures, sensors=SENSORS, seconds=given.seconds, ledger_events=given.events)


def _in_own_process(measure: Callable[..., list[Figure]], *arguments: object) -> list[Figure]:
    """Measure in a fresh process, whose memory and CPU time belong to the measurement alone."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure, *arguments).result()


def _play(seconds: float) -> list[Figure]:
    """Run the sensors against a loop that acks everything."""
    with _acking() as address, tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ledger.jsonl"
        with Ledger(file, lambda: time.time_ns() // 1_000_000) as written:
            began, cpu = time.monotonic(), time.process_time()
            taken = asyncio.run(_report(written, address, seconds))
            used = time.process_time() - cpu
        counts = written.counts
        elapsed = time.monotonic() - began
    rate = counts.acked / taken
    details = {"events": counts.events, "transmissions": counts.transmissions, "acked": counts.acked, "wall": elapsed}
    share = used / elapsed
    return [
        against(
            f"events acked by {SENSORS:,} sensors of one process", rate, "events/s", RATE_GOAL, at_least=True, **details
        ),
        against("processor time for each event", 1e6 * used / max(1, counts.acked), "us"),
        against("share of one core, opening the sockets included", share, "cores", 1.0),
    ]


async def _report(written: Ledger, address: tuple[str, int], seconds: float) -> float:
    """Run the sensors, and return how long they reported, in seconds."""
    plan = FleetPlan(SensorKind.COAP, SENSORS, SENSORS / EVENTS_PER_SECOND)
    field = Field(
        written,
        7,
        Targets(coap=address),
        Timing(),
        lambda moment: moment >= seconds,
        lambda: time.time_ns() // 1_000_000,
    )
    await fleet.play([plan], field)
    return asyncio.get_running_loop().time() - field.begin


@contextmanager
def _acking() -> Iterator[tuple[str, int]]:
    """Ack every request, in a process of its own."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiving:
        receiving.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BYTES)
        receiving.bind(("127.0.0.1", 0))
        acking = multiprocessing.get_context("fork").Process(target=_ack_all, args=(receiving,), daemon=True)
        acking.start()
        try:
            yield receiving.getsockname()
        finally:
            acking.kill()
            acking.join()


def _ack_all(receiving: socket.socket) -> None:
    while True:
        datagram, address = receiving.recvfrom(2_048)
        token_end = 4 + (datagram[0] & 15)
        receiving.sendto(bytes((0x60 | datagram[0] & 15, 0x44)) + datagram[2:token_end], address)


def _check(folder: str) -> list[Figure]:
    """Judge a ledger by its table."""
    file = Path(folder) / "ledger.jsonl"
    began = time.monotonic()
    events = sum(isinstance(line, Reported) for line in ledger.read(file))
    reading = time.monotonic() - began
    began = time.monotonic()
    with EvidenceDatabase() as evidence:
        evidence.add_ledger(ledger.read(file))
        evidence.add_rows(delta.read(Path(folder) / "table"))
        verdict = judge(evidence)
    checking = time.monotonic() - began
    if not verdict.kept or verdict.events != events or verdict.rows != events:
        raise RuntimeError(f"the oracle is wrong about a ledger that is right: {verdict}")
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    checked = f"ledger of {events:,} events checked against its Delta table"
    return [
        against("ledger read once, for comparison", reading, "s"),
        against(checked, checking, "s", CHECK_SECONDS_GOAL),
        against("most memory of the process that checks", megabytes, "MB", CHECK_MEGABYTES_GOAL),
    ]


def _make(folder: str, events: int) -> list[Figure]:
    """Write a ledger and the correct table for it."""
    _write_ledger(Path(folder) / "ledger.jsonl", events)
    reported = (line.event for line in ledger.read(Path(folder) / "ledger.jsonl") if isinstance(line, Reported))
    numbers = count(1)
    while batch := list(islice(reported, ROWS_OF_A_FILE)):
        write_deltalake(Path(folder) / "table", _columns(batch, [next(numbers) for _ in batch]), mode="append")
    return []


def _columns(events: Sequence[Event], numbers: Sequence[int]) -> Table:
    text, integer, moment = DataType.string(), DataType.int64(), DataType.timestamp("us", tz="UTC")
    times = [None if event.time is None else 1000 * event.time for event in events]
    now = [1_763_706_000_000_000] * len(events)
    return Table.from_pydict(
        {
            "device": Array([event.device for event in events], text),
            "type": Array([event.type for event in events], text),
            "id": Array([None if event.id is None else str(event.id) for event in events], text),
            "boot": Array([None for _ in events], text),
            "event_time": Array(times, integer).cast(moment),
            "data": Array([json.dumps(event.data) for event in events], text),
            "epoch": Array(["00" * 8 for _ in events], text),
            "sequence": Array(numbers, integer),
            "kafka_partition": Array([0 for _ in events], DataType.int32()),
            "kafka_offset": Array(numbers, integer),
            "fingerprint": Array([number.to_bytes(16, "big") for number in numbers], DataType.binary()),
            "processed_at": Array(now, integer).cast(moment),
            "gateway": Array(["gw1" for _ in events], text),
        }
    )


def _write_ledger(file: Path, events: int) -> None:
    generators = [PayloadGenerator(device_profile(index), Random(index)) for index in range(1_000)]
    with Ledger(file, lambda: time.time_ns() // 1_000_000) as written:
        for number in range(events):
            mark = written.reported(generators[number % len(generators)].next_event(1_763_706_000_000 + number))
            written.sent(mark)
            if number % 3 == 0:
                written.sent(mark, again=True)
            written.acked(mark)


if __name__ == "__main__":
    main()
