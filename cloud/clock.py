"""The driver's clock against the checkpoint's watermark, before anything is planned.

Spark writes a batch's time into its plan. A batch that is planned before the watermark drops everything unseen, and
keeps its time at every later start.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from cloud.checkpoint import Checkpoint

POLL_SECONDS = 0.5

logger = logging.getLogger(__name__)


def wait_for_clock(
    checkpoint: Checkpoint, pause: Callable[[float], bool], clock: Callable[[], float] = time.time
) -> bool:
    """Wait until the clock is beyond the watermark; return False where `pause` says that the job is to end."""
    if (batch := checkpoint.forget_batch_below_watermark()) is not None:
        logger.warning("batch=%d stage=forgotten hint='planned while the clock was behind; planned again now'", batch)
    watermark, is_told = checkpoint.watermark(), False
    while (behind := watermark / 1000 - clock()) >= 0:
        if not is_told:
            logger.warning(
                "clock=behind seconds=%.0f hint='nothing is read until the clock of the driver is set right; if it is "
                "right now, it was ahead before: start with a new checkpoint'",
                behind,
            )
            is_told = True
        if pause(POLL_SECONDS):
            return False
    return True
