"""`oncegate completion`: print the completion script of a shell."""

from __future__ import annotations

import argparse

EXAMPLES = """examples:
  source <(oncegate completion bash)
  oncegate completion bash | sudo tee /etc/bash_completion.d/oncegate > /dev/null
  oncegate completion zsh > ~/.zfunc/_oncegate      a folder of fpath, before compinit

The Debian package contains both scripts, and a manual page for each command: man oncegate-events
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's argument."""
    parser.add_argument("shell", choices=("bash", "zsh"), help="the shell")


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    from agent.cli.manual import bash, zsh

    print((bash if arguments.shell == "bash" else zsh).script(), end="")
    return 0
