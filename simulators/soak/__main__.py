"""Run a soak: `python -m simulators.soak`."""

from __future__ import annotations

import sys

from simulators.soak.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], "python -m simulators.soak"))
