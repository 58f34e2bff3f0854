"""SIGTERM and SIGINT: finish the batch, then end."""

from __future__ import annotations

import logging
import signal
import threading
from types import FrameType

from pyspark.sql import SparkSession

from cloud.platform import jvm

logger = logging.getLogger(__name__)

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """Whether somebody has asked the job to end, through the driver's Python or through the JVM around it."""

    def __init__(self) -> None:
        self._asked = threading.Event()

    def listen(self, spark: SparkSession) -> None:
        """Take the signals of both processes; the JVM by itself would end in the middle of a batch."""
        for number in STOP_SIGNALS:
            signal.signal(number, self._on_signal)
        jvm.accept_callbacks(spark)
        misc = jvm.classes(spark).sun.misc
        for number in STOP_SIGNALS:
            misc.Signal.handle(misc.Signal(number.name.removeprefix("SIG")), _JvmHandler(self))

    def ask(self) -> None:
        """Ask the job to end after its batch."""
        self._asked.set()

    def wait(self, seconds: float) -> bool:
        """Wait so long at most, and tell whether the job shall end."""
        return self._asked.wait(seconds)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.ask()


class _JvmHandler:
    """A signal handler of the JVM, called back over the gateway."""

    def __init__(self, request: StopRequest) -> None:
        self._request = request

    def handle(self, _signal: object) -> None:
        """Pass the request on; py4j calls this by the name that Java's interface gives it."""
        self._request.ask()

    class Java:
        """What py4j has to know."""

        implements = ("sun.misc.SignalHandler",)
