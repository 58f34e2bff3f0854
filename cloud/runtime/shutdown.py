"""SIGTERM and SIGINT: the job finishes its batch, then ends."""

from __future__ import annotations

import logging
import signal
import threading

from pyspark.sql import SparkSession

from cloud.runtime import jvm

logger = logging.getLogger(__name__)

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """Whether a stop was requested, by a signal to the Python driver or to its JVM."""

    def __init__(self) -> None:
        self._requested = threading.Event()

    def listen(self, spark: SparkSession) -> None:
        """Handle the signals of both processes; by default the JVM would end in the middle of a batch."""
        for number in STOP_SIGNALS:
            signal.signal(number, lambda *_: self.stop())
        jvm.accept_callbacks(spark)
        jvm_signal = jvm.java_class(spark, "sun.misc.Signal")
        for number in STOP_SIGNALS:
            jvm_signal.handle(jvm_signal(number.name.removeprefix("SIG")), _JvmHandler(self))

    def stop(self) -> None:
        """Request the end of the job after its batch."""
        self._requested.set()

    def wait(self, seconds: float) -> bool:
        """Wait for a request, at most `seconds`; return whether there is one."""
        return self._requested.wait(seconds)


class _JvmHandler:
    """A signal handler of the JVM, called back over the gateway."""

    def __init__(self, request: StopRequest) -> None:
        self._request = request

    def handle(self, _signal: object) -> None:
        """Pass on the request; the name is that of the method in Java's interface."""
        self._request.stop()

    class Java:
        """The Java interface, as py4j expects it."""

        implements = ("sun.misc.SignalHandler",)
