"""SIGTERM and SIGINT: the job finishes its batch, then ends."""

from __future__ import annotations

import threading

from pyspark.sql import SparkSession

from cloud.runtime import jvm
from cloud.runtime.outcome import STOP_SIGNALS, set_on_signals


class StopRequest(threading.Event):
    """Set where a stop was requested, by a signal to the Python driver or to its JVM."""

    def listen(self, spark: SparkSession) -> None:
        """Handle the signals of both processes; by default the JVM would end in the middle of a batch."""
        set_on_signals(self)
        jvm.accept_callbacks(spark)
        jvm_signal = jvm.java_class(spark, "sun.misc.Signal")
        for number in STOP_SIGNALS:
            jvm_signal.handle(jvm_signal(number.name.removeprefix("SIG")), _JvmHandler(self))


class _JvmHandler:
    """A signal handler of the JVM, called back over the gateway."""

    def __init__(self, request: StopRequest) -> None:
        self._request = request

    def handle(self, _signal: object) -> None:
        """Pass on the request; the name is that of the method in Java's interface."""
        self._request.set()

    class Java:
        """The Java interface, as py4j expects it."""

        implements = ("sun.misc.SignalHandler",)
