"""The outcome of a program: its exit status, and for each error a sentence that says what to do."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from functools import partial

from cloud.errors import JobError
from cloud.runtime.program_log import log_to_stderr

NEXT_STEP = "start it again; if the error returns, look it up in docs/cloud.md (When the job stops), or report it"


def exit_status(program: Callable[[], int], logger: logging.Logger) -> int:
    """Run a program, and return its exit status: 1 after an error, which is logged."""
    try:
        return program()
    except JobError as error:
        logger.error("stage=failed error=%r", str(error))  # a traceback would add nothing
    except Exception as error:
        logger.exception("stage=failed error=%r hint=%r", sentence(error), NEXT_STEP)
    return 1


def run_until_stopped(program: Callable[[threading.Event], int], logger: logging.Logger) -> int:
    """Run a program with its log, and an event that SIGTERM and SIGINT set; return its exit status."""
    log_to_stderr()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return exit_status(partial(program, stop), logger)


def sentence(error: Exception) -> str:
    """Return an error in one line, with its kind."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0].strip()}"
