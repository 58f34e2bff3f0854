"""An error of any kind ends a program with a sentence that says what to do."""

from __future__ import annotations

import logging

import pytest

from cloud.errors import StopError
from cloud.runtime.outcome import NEXT_STEP, exit_status
from cloud.runtime.terminal import printable

logger = logging.getLogger(__name__)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (StopError("do this"), "stage=failed error='do this'"),
        (ValueError("[KIND] what\nJVM stacktrace"), f"stage=failed error='ValueError: [KIND] what' hint={NEXT_STEP!r}"),
    ],
)
def test_an_error_is_logged_in_a_sentence(error: Exception, message: str, caplog: pytest.LogCaptureFixture) -> None:
    def program() -> int:
        raise error

    assert exit_status(program, logger) == 1
    [record] = caplog.records
    assert record.getMessage() == message


@pytest.mark.guarantee(6)
def test_what_senders_have_named_acts_on_no_terminal() -> None:
    assert printable("missing: gw\x1b[2J\u202e\x9b é😀") == "missing: gw\\x1b[2J\\u202e\\x9b é😀"
