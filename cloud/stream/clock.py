"""Checks the driver's clock against the checkpoint's watermark, before Spark plans a batch.

Spark writes a batch's time into its plan. A batch that is planned before the watermark drops all records, and keeps its
time at every later start (decision 42).
"""

import logging
import time
from collections.abc import Callable

from cloud.stream.checkpoint import Checkpoint

POLL_SECONDS = 0.5
REMIND_SECONDS = 600
"""The interval of the warning while the clock stays behind."""

logger = logging.getLogger(__name__)


def wait_for_clock(
    checkpoint: Checkpoint,
    pause: Callable[[float], bool],
    repeat: Callable[[], None],
) -> bool:
    """Wait until the clock is beyond the watermark; return False where `pause` returns that the job is to end.

    `repeat` commits the receipts again when that is due, since Kafka may expire them while the job waits.
    """
    if (batch := checkpoint.forget_batch_below_watermark()) is not None:
        logger.warning(
            "batch=%d stage=forgotten hint='its plan had a time that was behind; it is planned again'", batch
        )
    watermark = checkpoint.watermark()
    warned_at: float | None = None
    while (behind := watermark / 1000 - time.time()) >= 0:
        if warned_at is None or time.monotonic() - warned_at >= REMIND_SECONDS:
            logger.warning(
                "clock=behind seconds=%.0f hint='nothing is read until the clock of the driver is correct; if it is "
                "correct now, it was ahead before: start with a new checkpoint'",
                behind,
            )
            warned_at = time.monotonic()
        repeat()
        if pause(POLL_SECONDS):
            return False
    return True
