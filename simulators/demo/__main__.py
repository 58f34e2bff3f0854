"""Run the demo: `python -m simulators.demo`."""

from __future__ import annotations

import sys

from simulators.demo.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], "python -m simulators.demo"))
