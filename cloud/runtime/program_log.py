"""The log of a program, on its standard error."""

import logging
import sys


def log_to_stderr() -> None:
    """Log to standard error, without the messages of py4j, whose errors are raised as well."""
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s", level=logging.INFO)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
