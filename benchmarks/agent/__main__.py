"""Measure the gateway's inputs, print the table, and write docs/benchmarks/agent.json."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from benchmarks import report
from benchmarks.agent import memory, programs, rounds
from benchmarks.agent.loads import Result
from benchmarks.agent.rounds import Turns
from benchmarks.report import Figure

RATE, CPU, LATENCY, RATIO = "events/s", "us/event", "ms", "times"


def main() -> None:
    """Run all measurements; the results of `--quick` are printed only."""
    parser = report.parser("agent", __doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how often each contender runs (default: 5)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each run (default: 3)")
    parser.add_argument("--minutes", type=float, default=2.0, help="of the run for the memory (default: 2; 0: none)")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds, options.minutes = 1, 2.0, 0.25
    with report.build_folder() as folder:
        compiled = programs.compiled()
        contestants = rounds.all_contenders(compiled)
        measured = rounds.run(contestants, options.rounds, options.seconds, folder)
        held = memory.figures(compiled, options.minutes, folder) if options.minutes else []
    settings = {"rounds": options.rounds, "seconds": options.seconds, "minutes": options.minutes}
    report.conclude("agent", [*_rows(measured), *_ratios(measured), *held], is_kept=not options.quick, **settings)


def _rows(measured: Turns) -> Sequence[Figure]:
    figures = []
    for row, results in measured.rows.items():
        rates, cpus = [_rate(result) for result in results], [_cpu(result) for result in results]
        failures = {"refused": sum(one.refused for one in results), "resent": sum(one.resent for one in results)}
        figures.append(report.middle(row, rates, RATE, _RATES.get(row), at_least=True, **failures))
        figures.append(report.middle(f"{row}: CPU", cpus, CPU, _CPUS.get(row)))
        if p99s := [result.p99_ms for result in results if result.p99_ms]:
            p50 = median(result.p50_ms for result in results)
            figures.append(report.middle(f"{row}: p99", p99s, LATENCY, _P99S.get(row), p50=p50))
    return figures


def _ratios(measured: Turns) -> Sequence[Figure]:
    """Return our rows as multiples of their peers' in the same rounds, where the peers were measured."""
    wanted = (
        ("CoAP against NATS: rate", rounds.COAP_MANY, rounds.NATS_MANY, _rate, 4.0),
        ("CoAP against NATS: CPU", rounds.COAP_MANY, rounds.NATS_MANY, _cpu, 0.6),
        *(
            (f"HTTP against NATS, packs of {pack}: {name}", row, rounds.NATS_BATCHES[pack], value, None)
            for pack, row in rounds.HTTP_PACKS.items()
            for name, value in (("rate", _rate), ("CPU", _cpu))
        ),
        ("CoAP against the bare path: rate", rounds.COAP_MANY, rounds.BARE, _rate, 0.75),
        ("HTTP, single events, against ThingsBoard: rate", rounds.HTTP_SINGLE, rounds.THINGSBOARD, _rate, None),
        ("compiled against pure, CoAP: rate", rounds.COAP_MANY, f"pure: {rounds.COAP_MANY}", _rate, None),
        ("compiled against pure, CoAP: CPU", rounds.COAP_MANY, f"pure: {rounds.COAP_MANY}", _cpu, None),
    )
    return [
        report.middle(name, measured.ratios(row, other, value), RATIO, goal, at_least=value is _rate)
        for name, row, other, value, goal in wanted
        if other in measured.rows
    ]


def _rate(result: Result) -> float:
    return result.per_second


def _cpu(result: Result) -> float:
    return result.cpu_us


_RATES = {f"CoAP, fsync 10 ms slower, {rounds.SENSORS_MANY}": 10_000.0, "CoAP, 1,000/s beside 6,000 slow-path/s": 950.0}
_CPUS = {rounds.HTTP_PACKS[100]: 18.0, rounds.MQTT: 90.0}
_P99S = {
    f"CoAP, fsync 10 ms slower, {rounds.SENSORS_MANY}": 60.0,
    "CoAP, half the full rate": 25.0,
    "CoAP, 1,000/s beside 6,000 slow-path/s": 300.0,
}


if __name__ == "__main__":
    main()
