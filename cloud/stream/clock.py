"""The driver's clock against the checkpoint's watermark, before anything is planned.

Spark writes a batch's time into its plan. A batch that is planned before the watermark drops everything unseen, and
keeps its time at every later start.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from cloud.stream.checkpoint import Checkpoint

POLL_SECONDS = 0.5
REMIND_SECONDS = 600
"""How often it is logged that the clock is still behind."""

logger = logging.getLogger(__name__)


def wait_for_clock(
    checkpoint: Checkpoint,
    pause: Callable[[float], bool],
    repeat: Callable[[], None],
    clock: Callable[[], float] = time.time,
    monotonic: Callable[[], float] = time.monotonic,
) -> bool:
    """Wait until the clock is beyond the watermark; return False where `pause` says that the job is to end.

    `repeat` gives the receipts anew where that is due: the wait may outlast what Kafka keeps of them.
    """
    if (batch := checkpoint.forget_batch_below_watermark()) is not None:
        logger.warning("batch=%d stage=forgotten hint='planned while the clock was behind; planned again now'", batch)
    watermark = checkpoint.watermark()
    told_at: float | None = None
    while (behind := watermark / 1000 - clock()) >= 0:
        if told_at is None or monotonic() - told_at >= REMIND_SECONDS:
            logger.warning(
                "clock=behind seconds=%.0f hint='nothing is read until the clock of the driver is set right; if it is "
                "right now, it was ahead before: start with a new checkpoint'",
                behind,
            )
            told_at = monotonic()
        repeat()
        if pause(POLL_SECONDS):
            return False
    return True
