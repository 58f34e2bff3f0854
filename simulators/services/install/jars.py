"""The jars of the services: sets by name, downloaded into the cache with a display of progress."""

from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from cloud.jars import coordinates, download
from cloud.jars.coordinates import Jar, JarError
from simulators.services.error import ServiceError

LOCK_FILE = Path(__file__).with_name("jars.lock")
BROKER = "broker"
BROKER_3_9 = "broker_3_9"
"""The oldest supported broker, for heavy tests."""
SPARK = coordinates.SPARK
S3A = coordinates.S3A
ICEBERG = coordinates.ICEBERG
S3 = "s3"
"""An S3 server."""
STREAMS = "streams"
"""Kafka Streams, for a benchmark and heavy tests."""
CONNECT = "connect"
"""Kafka Connect with its connector for files, for a heavy test."""
FLINK = "flink"
"""Flink with its source for Kafka, for a heavy test."""
JDBC = "jdbc"
"""PostgreSQL's driver, for a heavy test."""
REST_CATALOG = "rest_catalog"
"""A catalog of Iceberg with a REST interface, for heavy tests."""
ARTEMIS = "artemis"
CALIFORNIUM = "californium"
"""An MQTT broker and a CoAP client of other makers, for heavy tests."""
TLC = "tlc"
"""The model checker, which only models/ needs."""


def paths(of: str) -> tuple[Path, ...]:
    """Return the jars of a set, after downloading those that the cache lacks."""
    jars = pinned()[of]
    try:
        missing = download.missing_from(jars, download.folder_of_jars())
        if not missing:
            return download.ensure(jars)
        text = TextColumn("jars: fetching {task.description}")
        with Progress(text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()) as progress:
            task = progress.add_task(of, total=len(missing))
            return download.ensure(jars, on_jar=lambda: progress.advance(task))
    except JarError as error:
        raise ServiceError(str(error)) from error


def pinned() -> dict[str, tuple[Jar, ...]]:
    """Return the pinned jars of all sets, with those of the cloud programs."""
    return {**coordinates.read_lock(LOCK_FILE), **coordinates.read_lock()}
