"""The command line of the simulators: `oncegate-sim`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib.metadata import version

_HELP = """usage: oncegate-sim COMMAND [OPTIONS]

Run simulated sensors over a lossy radio link against a gateway, and report whether events were lost or doubled.

commands:
run        run a scenario against a gateway in the field, or against all services on this machine
link       put a lossy link between real sensors and a gateway, and check how the sensors resend
scenarios  list the scenarios that are included
judge      judge an earlier run again by the current content of the table
validate   compare what an earlier run has seen of each device with the model of the path
report     rebuild the report of an earlier run from its ledger
demo       run the whole path on this machine, with processes killed at random

`oncegate-sim COMMAND --help` describes a command, `oncegate-sim --version` prints the version.

examples:
  oncegate-sim run lossy-radio --local
  oncegate-sim run lost-acks --target coap://gateway.lan --seed 7 --ledger out.jsonl
  oncegate-sim link --target coap://gateway.lan --loss 0.3 --events 20
"""
_COMMANDS = ("run", "link", "scenarios", "judge", "validate", "report", "demo")
_FAILURE = 1
_USAGE = 2


def main() -> None:
    """Run the command and exit: 0 fine, 1 a violated guarantee or a failure, 2 wrong usage."""
    arguments = sys.argv[1:]
    if arguments and arguments[0] in _COMMANDS:
        try:
            sys.exit(_run(arguments[0], arguments[1:]))
        except ModuleNotFoundError as error:
            package = (error.name or "a package").partition(".")[0]
            print(f"oncegate-sim: {package} is not installed; run: pip install '.[sim]'", file=sys.stderr)
            sys.exit(_FAILURE)
    if arguments and arguments[0] == "--version":
        print(f"oncegate-sim {version('oncegate')}")
        sys.exit(0)
    if arguments and arguments[0] in ("-h", "--help"):
        print(_HELP, end="")
        sys.exit(0)
    if arguments:
        near = get_close_matches(arguments[0], _COMMANDS, n=1)
        hint = f"did you mean {near[0]}?" if near else "see oncegate-sim --help"
        print(f"oncegate-sim: unknown command {arguments[0]!r}; {hint}", file=sys.stderr)
    else:
        print(_HELP, end="", file=sys.stderr)
    sys.exit(_USAGE)


def _run(name: str, arguments: Sequence[str]) -> int:
    # Each command imports only what it needs: listing scenarios does not require a Kafka client.
    program = f"oncegate-sim {name}"
    if name == "run":
        from simulators.run.command import main as run

        return run(arguments, program)
    if name == "link":
        from simulators.observed_link.command import main as link

        return link(arguments, program)
    if name == "demo":
        from simulators.demo.command import main as demo

        return demo(arguments, program)
    if name == "judge":
        from simulators.judge.command import main as judge

        return judge(arguments, program)
    if name == "validate":
        from simulators.validate.command import main as validate

        return validate(arguments, program)
    if name == "report":
        from simulators.report.command import main as report

        return report(arguments, program)
    return _list_scenarios(arguments)


def _list_scenarios(arguments: Sequence[str]) -> int:
    from simulators.scenario import shipped

    if arguments:
        print(
            "usage: oncegate-sim scenarios\n\nList the included scenarios, the targets each needs, and what it shows."
        )
        return 0 if arguments[0] in ("-h", "--help") else _USAGE
    for name, scenario in shipped().items():
        needs = "--local" if scenario.targets is None else " ".join(sorted(scenario.targets))
        print(f"{name:>24}  {needs:9}  {scenario.description}")
    return 0


if __name__ == "__main__":
    main()
