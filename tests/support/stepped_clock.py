"""Run the agent with a wall clock whose offset in seconds is in a file that may change.

libfaketime is not used: under it a timed wait of librdkafka lasts as long as the clock is set back.
"""

import sys
import time
from pathlib import Path

from agent.cli.main import main


def shift(offset: Path) -> None:
    real = time.time_ns
    time.time_ns = lambda: real() + int(offset.read_text()) * 1_000_000_000


if __name__ == "__main__":
    shift(Path(sys.argv.pop(1)))
    main()
