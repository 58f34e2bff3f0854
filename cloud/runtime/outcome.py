"""The outcome of a program: its exit status, and for each error a sentence that says what to do."""

from __future__ import annotations

import logging
from collections.abc import Callable

from cloud.errors import JobError

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


def sentence(error: Exception) -> str:
    """Return an error in one line, with its kind."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0].strip()}"
