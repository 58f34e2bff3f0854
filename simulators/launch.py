"""Start the agent or the job with some of its functions replaced: for mutants, and a clock that can be set.

    python -m simulators.launch agent MODULE:FUNCTION … -- run --config FILE

Each FUNCTION is called in the program's process before it starts. This is the only place where the simulators modify
the product, and only in the product's own process.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

CLOCK_VARIABLE = "ONCEGATE_SIM_CLOCK"
"""The environment variable that names the file with the offset of the clock in milliseconds."""


def main(arguments: Sequence[str]) -> int:
    """Apply the patches and run the program."""
    target, *rest = arguments
    end = rest.index("--")
    for patch in rest[:end]:
        module, function = patch.split(":")
        getattr(import_module(module), function)()
    own = rest[end + 1 :]
    if target == "agent":
        sys.argv = ["oncegate", *own]
        import_module("agent.cli.main").main()
        return 0
    status: int = import_module(f"cloud.{target}").main(own)
    return status


def shift_clock() -> None:
    """Shift SystemClock.wall_ms, the agent's only source of wall-clock time, by the offset in a file.

    libfaketime also shifts timed waits of threads, so that they block while the clock is set back (decision 24).
    """
    kind: Any = import_module("agent.clock").SystemClock
    file = Path(os.environ[CLOCK_VARIABLE])
    wall_ms = kind.wall_ms
    kind.wall_ms = lambda self: wall_ms(self) + int(file.read_text())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
