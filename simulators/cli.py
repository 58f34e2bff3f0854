"""The command line of the simulators: `oncegate-sim`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

_HELP = """usage: oncegate-sim COMMAND [OPTIONS]

Play sensors over a bad radio against a gateway, and tell whether anything was lost or doubled.

commands:
  run        play a scenario against a gateway in the field, or against all parts on this machine
  scenarios  list the scenarios that come along
  judge      judge an earlier run again, by what the table has now
  compare    run one scenario under each delivery mode, and with dedup taken out, and show what each layer saves
  report     build the report of an earlier run again, from its ledger
  demo       the straight path on this machine, with kills in the middle of work

`oncegate-sim COMMAND --help` explains a command.

examples:
  oncegate-sim run lossy-radio --local
  oncegate-sim run lost-acks --target coap://gateway.lan --seed 7 --ledger out.jsonl
"""
_COMMANDS = ("run", "scenarios", "judge", "compare", "report", "demo")
_FAILURE = 1
_USAGE = 2


def main() -> None:
    """Run the command and exit: 0 fine, 1 a broken promise or a failure, 2 wrong usage."""
    arguments = sys.argv[1:]
    if arguments and arguments[0] in _COMMANDS:
        try:
            sys.exit(_run(arguments[0], arguments[1:]))
        except ModuleNotFoundError as error:
            package = (error.name or "a package").partition(".")[0]
            print(f"oncegate-sim: {package} is not installed; run: pip install '.[sim]'", file=sys.stderr)
            sys.exit(_FAILURE)
    if arguments and arguments[0] in ("-h", "--help"):
        print(_HELP, end="")
        sys.exit(0)
    print(_HELP, end="", file=sys.stderr)
    sys.exit(_USAGE)


def _run(name: str, arguments: Sequence[str]) -> int:
    # Each command loads what it needs: a list of scenarios takes no Kafka client.
    program = f"oncegate-sim {name}"
    if name == "run":
        from simulators.run.command import main as run

        return run(arguments, program)
    if name == "demo":
        from simulators.demo.command import main as demo

        return demo(arguments, program)
    if name == "compare":
        from simulators.compare.command import main as compare

        return compare(arguments, program)
    if name == "judge":
        from simulators.judge.command import main as judge

        return judge(arguments, program)
    if name == "report":
        from simulators.report.command import main as report

        return report(arguments, program)
    return _list_scenarios(arguments)


def _list_scenarios(arguments: Sequence[str]) -> int:
    from simulators.scenario import shipped

    if arguments:
        print("usage: oncegate-sim scenarios\n\nList the scenarios that come along, and what each shows.")
        return 0 if arguments[0] in ("-h", "--help") else _USAGE
    for name, scenario in shipped().items():
        print(f"{name:>24}  {scenario.shows}")
    return 0


if __name__ == "__main__":
    main()
