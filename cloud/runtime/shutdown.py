"""SIGTERM and SIGINT: the job finishes its batch, then ends."""

import threading
from typing import Any

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from cloud.runtime import jvm
from cloud.runtime.outcome import STOP_SIGNALS, set_on_signals


class StopRequest(threading.Event):
    """Set where a stop was requested, by a signal to the Python driver or to its JVM."""

    def listen(self, spark: SparkSession) -> None:
        """Handle the signals of both processes; by default the JVM would end in the middle of a batch."""
        set_on_signals(self)
        context: Any = spark.sparkContext  # Spark itself lets the JVM call this process with its first stream
        ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]  # pyspark has no types for it
        jvm_signal = jvm.java_class(spark, "sun.misc.Signal")
        for number in STOP_SIGNALS:
            jvm_signal.handle(jvm_signal(number.name.removeprefix("SIG")), self)

    def handle(self, _signal: object) -> None:
        """Take the request from the JVM, which calls it back as the method of its interface."""
        self.set()

    class Java:
        """The Java interface, as py4j expects it."""

        implements = ("sun.misc.SignalHandler",)
