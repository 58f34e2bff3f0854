"""How a program begins and ends: its log, its exit status, and for each error a sentence that says what to do."""

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from importlib.metadata import PackageNotFoundError, version

from cloud.errors import HookTimeError, JobError
from contract.fields import VERSION

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
NEXT_STEP = "start it again; if the error returns, look it up in docs/cloud.md (When the job stops), or report it"


def log_to_stderr() -> None:
    """Log to standard error, without the messages of py4j, whose errors are raised as well."""
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s", level=logging.INFO)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)


def exit_status(program: Callable[[], int], logger: logging.Logger) -> int:
    """Run a program with its log, and return its exit status: 1 after an error, which is logged."""
    log_to_stderr()
    logger.info("stage=process version=%r contract=%d", version_of_package(), VERSION)
    try:
        return program()
    except JobError as error:
        logger.error("stage=failed error=%r", str(error))  # a traceback would add nothing
        if isinstance(error, HookTimeError):
            logging.shutdown()
            os._exit(1)  # Python would wait for the threads of the user's function, which may never end
    except Exception as error:
        logger.exception("stage=failed error=%r hint=%r", sentence(error), NEXT_STEP)
    return 1


def version_of_package() -> str:
    """Return the version of this program."""
    try:
        return version("oncegate")
    except PackageNotFoundError:  # a driver in a cluster has the archive of the packages alone
        return "of unknown version"


def run_until_stopped(program: Callable[[threading.Event], int], logger: logging.Logger) -> int:
    """Run a program with an event that SIGTERM and SIGINT set; return its exit status."""
    set_on_signals(stop := threading.Event())
    return exit_status(partial(program, stop), logger)


def set_on_signals(stop: threading.Event) -> None:
    """Have SIGTERM and SIGINT set an event."""
    for number in STOP_SIGNALS:
        signal.signal(number, lambda *_: stop.set())


def sentence(error: Exception) -> str:
    """Return an error in one line, with its kind."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0].strip()}"


def printable(text: str) -> str:
    """Return a text for a terminal, on which senders' texts must not act.

    Control characters, overrides of direction and invisible characters become escapes.
    """
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def counted(number: int, one: str) -> str:
    """Return a number with its noun, given in the singular."""
    return f"{number:,} {one if number == 1 else f'{one}s'}"
