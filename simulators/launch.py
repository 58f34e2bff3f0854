"""Start the agent or the job with some of its functions replaced: for mutants, and for benchmarks.

    python -m simulators.launch agent MODULE:FUNCTION … -- run --config FILE

Each FUNCTION is called in the program's process before it starts. This is the only place where the simulators modify
the product, and only in the product's own process.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module


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
    status: int = import_module("cloud.job").main(own)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
