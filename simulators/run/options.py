"""The command line of `oncegate-sim run`."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from simulators.arguments import LEDGER_FILE, add_seed, make_parser, target
from simulators.judge.sink import Sink, add_arguments, read_sink
from simulators.run.services import Overrides
from simulators.scenario import Scenario, find
from simulators.strict_toml import TomlError

_EXAMPLES = """examples:
  %(prog)s lossy-radio --local                                   all services on this machine
  %(prog)s lost-acks --target 'coap://[fd00::1]:5683' --seed 7   a gateway in the field
  %(prog)s quiet-house --target coap://gw.lan --target http://gw.lan:8580 --kafka kafka.lan:9092
  %(prog)s my.toml --target coap://gw.lan --ledger out.jsonl --table /data/events
"""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of one run."""

    scenario: Scenario
    seed: int
    folder: Path
    local: bool = True
    targets: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    http_token: str | None = None
    ledger: Path | None = None
    sink: Sink = field(default_factory=Sink)
    overrides: Overrides = field(default_factory=Overrides)

    @property
    def ledger_file(self) -> Path:
        """The file of the ledger."""
        return self.ledger or self.folder / LEDGER_FILE


def parse(arguments: Sequence[str], program: str) -> RunOptions:
    """Parse the arguments; wrong usage prints an error and exits with status 2."""
    parser = make_parser(
        program,
        (
            "Run a scenario against a gateway and judge every event. Exit status 0: the guarantees "
            "held; 1: one was violated, the evidence was missing or incomplete, or the run failed; 2: wrong usage; "
            "130: interrupted."
        ),
        _EXAMPLES,
    )
    _add_arguments(parser)
    given = parser.parse_args(arguments)
    try:
        scenario = find(given.scenario)
    except TomlError as error:
        parser.error(str(error))
    targets = dict(given.target)
    if bool(targets) == given.local:
        parser.error("expected either --local or at least one --target")
    if not given.local and (missing := sorted(scenario.targets - targets.keys())):
        parser.error(f"{scenario.name} has sensors that need --target {missing[0]}://HOST")
    return RunOptions(
        scenario=scenario,
        seed=given.seed,
        folder=given.folder or Path("build/field") / scenario.name,
        local=given.local,
        targets=targets,
        http_token=_token(parser, given.token_file),
        ledger=given.ledger,
        sink=read_sink(parser, given),
    )


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("scenario", metavar="SCENARIO", help="a TOML file, or a name that `oncegate-sim scenarios` lists")
    add("--local", action="store_true", help="start broker, agent, job and table on this machine")
    add(
        "--target",
        type=target,
        action="append",
        default=[],
        metavar="URL",
        help="a gateway's coap://HOST[:PORT], http://HOST[:PORT], or its broker's mqtt://HOST[:PORT]; one of each",
    )
    add("--token-file", type=Path, metavar="FILE", help="token of a relay, for http:// (first line of the file)")
    add_seed(parser)
    add("--ledger", type=Path, metavar="FILE", help="the ledger to write (default: ledger.jsonl in --folder)")
    add("--folder", type=Path, metavar="PATH", help="for verdict and report, emptied first (default: build/field/NAME)")
    add_arguments(parser)


def _token(parser: argparse.ArgumentParser, file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        return file.read_text().partition("\n")[0].strip()
    except OSError as error:
        parser.error(f"--token-file: {error}")
