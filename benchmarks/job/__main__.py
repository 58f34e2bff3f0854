"""The job alone: `python -m benchmarks.job [--quick] [--only a b]`.

How its batches slow down with the keys in its state, with late traffic, with the length of its table's log, how old its
receipts are at a steady rate, and what an audit takes.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from confluent_kafka import KafkaException

from benchmarks import report
from benchmarks.cloud.runs import DRIVER_MEGABYTES, WINDOW, Bench
from benchmarks.job.audit import audit_figures
from benchmarks.job.late import late_figures
from benchmarks.job.receipts import receipt_figures
from benchmarks.job.window import log_figures, window_figures
from benchmarks.report import Figure
from simulators.services.error import ServiceError
from simulators.services.kafka.broker import Broker

PARTITIONS = 4
ALL = ("receipts", "late", "window", "log", "audit")


@dataclass(frozen=True, slots=True)
class Size:
    """The sizes of a run."""

    batch: int
    late_rows: int
    late_records: int
    receipt_seconds: int
    window_keys: int
    log_versions: int
    audit_records: int


FULL = Size(400_400, 10_000_000, 800_000, 150, 5_000_000, 43_200, 1_000_000)
QUICK = Size(50_000, 500_000, 20_000, 25, 500_000, 10_800, 20_000)


def main() -> int:
    """Run the chosen measurements, print the table, write the JSON; exit status 1 where one of them failed."""
    started = time.monotonic()
    given = report.parser("job", __doc__, ALL).parse_args()
    size = QUICK if given.quick else FULL
    names = given.only
    with report.folder() as folder, Broker(folder / "kafka") as broker:
        figures, failed = _measure(Bench(broker, "events", PARTITIONS, 0, size.batch, folder), size, names)
    took = (time.monotonic() - started) / 60
    print(f"all of it took {took:.1f} minutes", flush=True)
    settings = {"partitions": PARTITIONS, "window": WINDOW, "driver_megabytes": DRIVER_MEGABYTES, "minutes": took}
    is_kept = not given.quick and set(names) == set(ALL)
    report.conclude("job", figures, is_kept=is_kept, **asdict(size), **settings, failed=failed)
    return 1 if failed else 0


def _measure(bench: Bench, size: Size, names: list[str]) -> tuple[list[Figure], list[str]]:
    """Return the figures of all measurements, and the names of those that failed."""
    measures: dict[str, Callable[[], list[Figure]]] = {
        "receipts": lambda: receipt_figures(bench, size.receipt_seconds),
        "late": lambda: late_figures(bench, size.late_rows, size.late_records),
        "window": lambda: window_figures(bench, size.window_keys),
        "log": lambda: log_figures(bench, size.log_versions),
        "audit": lambda: audit_figures(bench, size.audit_records),
    }
    figures: list[Figure] = []
    failed: list[str] = []
    for name in names:
        started = time.monotonic()
        try:
            figures += measures[name]()
        except (ServiceError, KafkaException, OSError, subprocess.CalledProcessError, ValueError) as error:
            failed.append(name)
            report.progress(f"{name}: not measured: {error}")
        report.progress(f"{name}: {time.monotonic() - started:.0f} s")
    return figures, failed


if __name__ == "__main__":
    sys.exit(main())
