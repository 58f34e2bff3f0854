"""The command line of the simulators: `oncegate-sim demo`."""

from __future__ import annotations

import sys

from simulators.demo import command

_HELP = """usage: oncegate-sim COMMAND [OPTIONS]

Play sensors over a bad radio against the whole path, and tell whether anything was lost or doubled.

commands:
  demo     run sensors, agent, Kafka and the Spark job on this machine, kill what can be killed, give the verdict

`oncegate-sim COMMAND --help` explains a command.
"""
_COMMANDS = {"demo": command.main}
_USAGE = 2


def main() -> None:
    """Run the command and exit: 0 fine, 1 a broken promise or a failure, 2 wrong usage."""
    arguments = sys.argv[1:]
    if arguments and arguments[0] in _COMMANDS:
        sys.exit(_COMMANDS[arguments[0]](arguments[1:], f"oncegate-sim {arguments[0]}"))
    if arguments and arguments[0] in ("-h", "--help"):
        print(_HELP, end="")
        sys.exit(0)
    print(_HELP, end="", file=sys.stderr)
    sys.exit(_USAGE)


if __name__ == "__main__":
    main()
