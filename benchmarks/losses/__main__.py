"""Compare what gateways lose and duplicate under the same faults, and write docs/benchmarks/losses.json."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path

from benchmarks import report
from benchmarks.agent import programs
from benchmarks.losses import contest, gateways
from benchmarks.losses.gateways import EACH_CHANGE, EACH_SECOND, Gateway
from benchmarks.report import Figure
from simulators.services.kafka.broker import Broker

SEED = 7
_WITH_KAFKA: dict[str, Callable[[Path, Broker], Gateway]] = {
    "oncegate": gateways.oncegate,
    "kafka-idempotent": gateways.idempotent_producer,
    "telegraf": gateways.telegraf,
}
_ALONE: dict[str, Callable[[Path], Gateway]] = {
    "mqtt-qos2": partial(gateways.qos_two, settings=EACH_CHANGE),
    "mqtt-qos2-each-second": partial(gateways.qos_two, settings=EACH_SECOND),
    "nats": gateways.nats,
    "thingsboard": gateways.thingsboard,
}
_NAMES = (*_WITH_KAFKA, *_ALONE)


def main() -> None:
    """Run the contenders one after the other; `--only` runs some of them, and saves nothing."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.losses", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=_NAMES, default=(), help="only these; nothing is kept")
    parser.add_argument("--seed", type=int, default=SEED, help="of the lost responses (default: %(default)s)")
    options = parser.parse_args()
    figures: list[Figure] = []
    for name in options.only or _NAMES:
        with report.build_folder() as folder, _gateway(name, folder) as gateway:
            outcome = contest.run(gateway, options.seed)
        report.progress(f"{name}: {outcome}")
        figures.append(Figure(f"{name}: lost", outcome.lost, "events", details=asdict(outcome)))
        figures.append(Figure(f"{name}: duplicated", outcome.duplicated, "events"))
    settings = {"events": contest.EVENTS, "sensors": contest.SENSORS, "response_loss": contest.RESPONSE_LOSS}
    report.conclude("losses", figures, is_kept=not options.only, seed=options.seed, **settings)


@contextmanager
def _gateway(name: str, folder: Path) -> Iterator[Gateway]:
    needed = {"telegraf": programs.telegraf, "thingsboard": programs.thingsboard_python, "nats": programs.nats_server}
    if name in needed and needed[name]() is None:
        raise SystemExit(f"bench-losses: {name} cannot be built or installed here")
    if name in _WITH_KAFKA:
        with Broker(folder / "kafka") as broker:
            yield _WITH_KAFKA[name](folder / "gateway", broker)
    else:
        yield _ALONE[name](folder / "gateway")


if __name__ == "__main__":
    main()
