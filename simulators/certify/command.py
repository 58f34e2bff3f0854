"""`oncegate-sim certify`: judge a consumer that gives receipts by docs/receipts.md."""

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from simulators.arguments import USAGE, add_seed, make_parser, natural, positive, seconds
from simulators.certify.members import CommandError, check_command
from simulators.certify.result import FORMS, AbsentError, Result, ResultError
from simulators.certify.stage import Plan, Stage, StandstillError
from simulators.certify.verdict import FAULTS, faults
from simulators.display import Display
from simulators.errors import RunError
from simulators.run.services import empty_folder
from simulators.services.kafka.broker import Broker
from simulators.terminal import FAILED, FINE, guarded, open_console

KINDS = {
    "kill": "SIGKILL directly after a receipt, and directly after new rows",
    "restart": "SIGTERM, and started again",
    "rebalance": "a second instance joins, the first is killed, the second leaves",
    "broker": "the broker is killed, and started again",
    "malformed": "records that are no events",
    "aborted": "records of transactions that were aborted",
    "retention": "records are deleted that the consumer has not read",
    "truncation": "the log loses its end, and has other records there",
    "topic": "the topic is deleted and made anew",
}
SHOWN = 5
"""Examples of each fault."""

_EXAMPLES = """in COMMAND, and as environment variables:
  {bootstrap_servers}  ONCEGATE_BOOTSTRAP_SERVERS  the broker
  {topic}              ONCEGATE_TOPIC              the topic: another one in each of up to three parts of the run
  {group}              ONCEGATE_GROUP              the group that gives the receipts
  {instance}           ONCEGATE_INSTANCE           1, or 2 for the second instance
{topic} is replaced in --result and --query, too: a name for the table or the file of each part.

columns of the query: fingerprint (ce_id: text or 16 bytes), and for refused records, whose fingerprint is NULL,
kafka_partition and kafka_offset. The table of --result jsonl:FILE, or of one Delta table, is named result.

examples:
  %(prog)s --result postgresql://localhost/db --query 'SELECT fingerprint FROM {topic}' -- ./mine --table {topic}
  %(prog)s --faults kill,topic --result jsonl:out/{topic} --query 'SELECT fingerprint FROM result' -- python mine.py
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run has found."""

    counts: dict[str, int]
    faults: dict[str, list[str]]
    notes: list[str]

    @property
    def is_clean(self) -> bool:
        """Whether everything was judged and nothing found."""
        return not self.faults and not self.notes


def main(arguments: Sequence[str], program: str) -> int:
    """Judge a consumer and return the exit status: 0 only where everything was judged, and nothing found."""
    plan = parse(arguments, program)
    try:
        check_command(plan.command)
    except CommandError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return USAGE
    console = Console(markup=False, stderr=True) if plan.in_json else open_console()

    def work() -> int:
        console.print(f"seed {plan.seed}; logs: {plan.folder / 'logs'}", soft_wrap=True)
        outcome = _run(plan, console)
        if plan.in_json:
            document = {"clean": outcome.is_clean, "seed": plan.seed, "counts": outcome.counts, "notes": outcome.notes}
            print(json.dumps({**document, "faults": outcome.faults}, indent=2))
        _show(outcome, console)
        return FINE if outcome.is_clean else FAILED

    return guarded(work, "certify", console, interrupted="interrupted: no verdict; no process is left")


def parse(arguments: Sequence[str], program: str) -> Plan:
    """Parse the arguments; wrong usage prints an error and exits with status 2."""
    own, command = _split(arguments)
    parser = _parser(program)
    given = parser.parse_args(own)
    if not command:
        parser.error("expected -- COMMAND …")
    try:
        result = Result(given.result, given.query)
    except ResultError as error:
        parser.error(str(error))
    return Plan(
        command=command,
        result=result,
        faults=given.faults,
        kills=given.kills,
        events=given.events,
        wait_seconds=given.wait,
        folder=given.folder.absolute(),
        seed=given.seed,
        in_json=given.json,
    )


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the options, and the command behind the first `--`."""
    given = list(arguments)
    at = given.index("--") if "--" in given else len(given)
    return given[:at], given[at + 1 :]


def _parser(program: str) -> argparse.ArgumentParser:
    parser = make_parser(
        program,
        "Start a broker and your consumer, let both fail, and judge the receipts as gateways do: docs/certify.md. Exit "
        "status 0: clean; 1: not clean, or not all could be judged; 2: wrong usage; 130: interrupted.",
        _EXAMPLES,
    )
    parser.usage = f"{program} [OPTIONS] --result URL --query SQL -- COMMAND …"
    add = parser.add_argument
    add("--result", required=True, metavar="URL", help=f"where the consumer writes: {FORMS}")
    add("--query", required=True, metavar="SQL", help="the query for what it has written")
    kinds = "; ".join(f"{name}: {what}" for name, what in KINDS.items())
    add("--faults", type=_kinds, default=frozenset(KINDS), metavar="NAME,…", help=f"default: all. {kinds}")
    add("--kills", type=natural, default=4, metavar="N", help="how often it is killed (default: %(default)s)")
    add(
        *("--events",),
        type=positive,
        default=500,
        metavar="N",
        help="events of each of two gateways before each fault (default: %(default)s)",
    )
    add(
        *("--wait",),
        type=seconds,
        default=90.0,
        metavar="SECONDS",
        help="how long no receipt may come, starts and rebalances included (default: %(default)g)",
    )
    folder = Path("build/certify")
    add("--folder", type=Path, default=folder, metavar="PATH", help="for logs, emptied first (default: %(default)s)")
    add("--json", action="store_true", help="print the verdict as JSON on standard output, all else on standard error")
    add_seed(parser)
    return parser


def _kinds(text: str) -> frozenset[str]:
    names = frozenset(name for name in text.split(",") if name)
    if unknown := sorted(names - KINDS.keys()):
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(KINDS)}")
    return names


def _run(plan: Plan, console: Console) -> Outcome:
    empty_folder(plan.folder)
    _log_gateways(plan.folder / "logs" / "gateways.log")
    with suppress(AbsentError):  # the consumer makes it
        plan.result.read("oncegate_before")
    stages: list[Stage] = []
    notes: list[str] = []
    with Display(console) as display:
        display.phase("starting Kafka")
        with Broker(plan.folder / "kafka") as broker:
            for name in ("work", "truncation", "topic"):
                if name != "work" and name not in plan.faults:
                    continue
                with Stage(name, plan, broker, display) as stage:
                    stages.append(stage)
                    try:
                        getattr(stage, name)()
                        if name == "work" and "retention" in plan.faults:
                            stage.retention()
                    except (StandstillError, RunError) as error:
                        held = sorted({one.held for one in stage.traffic.gateways} - {""})
                        notes += [f"{name}: {error}", *held]
                        stage.members.kill()
                        stage.judge_end(is_complete=True)
                        break
    return _outcome(stages, notes)


def _outcome(stages: Sequence[Stage], notes: list[str]) -> Outcome:
    found: dict[str, list[str]] = {}
    counts: dict[str, int] = {}
    for stage in stages:
        notes += stage.notes
        for name, events in faults(stage.facts).items():
            found.setdefault(name, []).extend(events)
        numbers = {
            "events that gateways have sent": len(stage.facts.places),
            "events with a receipt that gateways believe": len(stage.facts.believed),
            "events that were returned and sent again": sum(one.returned_events for one in stage.traffic.gateways),
            "malformed records": len(stage.facts.malformed),
            "kills": stage.members.kills,
            "times that it ended by itself": len(stage.members.ends),
            "looks at the result at a receipt, while it ran": stage.seen["checks"],
            "looks at the result while it was down": stage.seen["checks_down"],
        }
        counts = {name: counts.get(name, 0) + number for name, number in numbers.items()}
    return Outcome(counts, found, notes)


def _log_gateways(file: Path) -> None:
    """Have the gateways' log lines in a file: they say why receipts are held."""
    handler = logging.FileHandler(file)
    handler.setFormatter(logging.Formatter("%(asctime)s %(threadName)s %(message)s"))
    log = logging.getLogger("agent")
    log.setLevel(logging.INFO)
    log.propagate = False
    log.addHandler(handler)


def _show(outcome: Outcome, console: Console) -> None:
    table = Table(title="certify", title_justify="left")
    table.add_column("")
    table.add_column("count", justify="right")
    for label, count in outcome.counts.items():
        table.add_row(label, f"{count:,}")
    for label, events in outcome.faults.items():
        table.add_row(label, f"{len(events):,}", style="bold red")
    console.print(table)
    for label, events in outcome.faults.items():
        console.print(f"{label}: {FAULTS[label]}, such as", style="red", soft_wrap=True)
        for event in events[:SHOWN]:
            console.print(f"  {event}", highlight=False, soft_wrap=True)
    for note in outcome.notes:
        console.print(note, style="yellow", highlight=False, soft_wrap=True)
    clean = "clean: no receipt was wrong, and nothing was lost or doubled"
    console.print(clean if outcome.is_clean else "not clean", style="bold green" if outcome.is_clean else "bold red")
