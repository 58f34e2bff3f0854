"""Compare what gateways lose and duplicate under the same faults, and write docs/benchmarks/losses.json.

Those with a Kafka run one after the other, and the others beside them, on the second core: no speed is compared.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from benchmarks import report
from benchmarks.agent import programs
from benchmarks.losses import contest, gateways
from benchmarks.losses.contest import Outcome
from benchmarks.losses.gateways import EACH_CHANGE, EACH_SECOND, Gateway
from benchmarks.rounds import Rounds
from simulators.services.error import ServiceError
from simulators.services.kafka.broker import Broker

ROUNDS = 3
_WITH_KAFKA: Mapping[str, Callable[[Path, Broker], Gateway]] = {
    "oncegate": gateways.oncegate,
    "kafka-idempotent": gateways.idempotent_producer,
    "telegraf": gateways.telegraf,
}
_ALONE: Mapping[str, Callable[[Path], Gateway]] = {
    "mqtt-qos2": partial(gateways.qos_two, settings=EACH_CHANGE),
    "mqtt-qos2-each-second": partial(gateways.qos_two, settings=EACH_SECOND),
    "nats": gateways.nats,
    "thingsboard": gateways.thingsboard,
}
_NEEDED = {"telegraf": programs.telegraf, "thingsboard": programs.thingsboard_python, "nats": programs.nats_server}


def main() -> int:
    """Run the contenders in rounds; exit status 1 where one failed."""
    given = report.parse(report.parser("losses", __doc__, (*_WITH_KAFKA, *_ALONE), ROUNDS))
    rounds = Rounds[Outcome]()
    lanes = [{name: partial(_run, name) for name in lane if name in given.only} for lane in (_WITH_KAFKA, _ALONE)]
    with ThreadPoolExecutor(len(lanes)) as threads:
        list(threads.map(lambda lane: rounds.run(lane, given.rounds), lanes))
    figures = [
        report.middle(f"{name}: {what}", [getattr(one, what) for one in outcomes.values()], "events")
        for name, outcomes in rounds.rows.items()
        for what in ("transmissions", "lost", "duplicated")
    ]
    settings = {"events": contest.EVENTS, "sensors": contest.SENSORS, "response_loss": contest.RESPONSE_LOSS}
    return report.conclude("losses", figures, given, rounds.failed, rounds=given.rounds, **settings)


def _run(name: str) -> Iterator[tuple[str, Outcome]]:
    if name in _NEEDED and _NEEDED[name]() is None:
        raise ServiceError(f"{name} cannot be built or installed here")
    with report.build_folder() as folder:
        if name in _ALONE:
            yield name, contest.run(_ALONE[name](folder / "gateway"))
        else:
            with Broker(folder / "kafka") as broker:
                yield name, contest.run(_WITH_KAFKA[name](folder / "gateway", broker))


if __name__ == "__main__":
    sys.exit(main())
