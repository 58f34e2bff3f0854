"""The command line of the simulators: `oncegate-sim`."""

import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import version

_COMMANDS = {
    "run": ("simulators.run.command", "run a scenario against a gateway in the field, or against all services here"),
    "link": ("simulators.observed_link.command", "put a lossy link between real sensors and a gateway, and check them"),
    "scenarios": ("simulators.cli", "list the scenarios that are included"),
    "judge": ("simulators.judge.command", "judge an earlier run again by the current content of the table"),
    "validate": ("simulators.validate.command", "compare an earlier run, device by device, with the model of the path"),
    "report": ("simulators.report.command", "rebuild the report of an earlier run from its ledger"),
    "certify": ("simulators.certify.command", "judge a consumer of your own that gives receipts"),
    "demo": ("simulators.demo", "run the whole path on this machine, with processes killed at random"),
}
"""The module of each command, imported only where it is used: listing scenarios requires no Kafka client."""
_LISTED = "\n".join(f"{name:11}{meaning}" for name, (_, meaning) in _COMMANDS.items())
_HELP = f"""usage: oncegate-sim COMMAND [OPTIONS]

Run simulated sensors over a lossy radio link against a gateway, and report whether events were lost or doubled.

commands:
{_LISTED}

`oncegate-sim COMMAND --help` describes a command, `oncegate-sim --version` prints the version.

examples:
  oncegate-sim run lossy-radio --local
  oncegate-sim run lost-acks --target coap://gateway.lan --seed 7 --ledger out.jsonl
  oncegate-sim link --target coap://gateway.lan --loss 0.3 --events 20
"""
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
    if name == "scenarios":
        return _list_scenarios(arguments)
    status: int = import_module(_COMMANDS[name][0]).main(arguments, f"oncegate-sim {name}")
    return status


def _list_scenarios(arguments: Sequence[str]) -> int:
    from simulators.scenario import shipped

    if arguments:
        print(
            "usage: oncegate-sim scenarios\n\nList the included scenarios, the targets each needs, and what it shows."
        )
        return 0 if arguments[0] in ("-h", "--help") else _USAGE
    for name, scenario in shipped().items():
        needs = " ".join(sorted(scenario.targets))
        print(f"{name:>24}  {needs:9}  {scenario.description}")
    return 0


if __name__ == "__main__":
    main()
