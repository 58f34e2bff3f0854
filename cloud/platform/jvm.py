"""The JVM beneath Spark: the only door to what PySpark does not offer."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.errors import PySparkException
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

FAILURES = (PySparkException, Py4JJavaError)
"""What a call of Spark raises where it fails: in Python, or in the JVM."""


def classes(spark: SparkSession) -> Any:
    """Return access to Java's classes by their full names."""
    gateway: Any = spark.sparkContext
    return gateway._jvm


def accept_callbacks(spark: SparkSession) -> None:
    """Make this process reachable for Java's classes that call it; Spark does so with its first stream."""
    context: Any = spark.sparkContext
    ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]  # pyspark gives it no types


def hadoop_path(spark: SparkSession, path: str) -> Any:
    """Return a path of Hadoop's file systems."""
    return classes(spark).org.apache.hadoop.fs.Path(path)


def qualify(spark: SparkSession, path: str) -> str:
    """Write a path as a whole URI: a relative one would mean another folder to another part of Spark."""
    return str(file_system(spark, path).makeQualified(hadoop_path(spark, path)).toUri().toString())


def file_system(spark: SparkSession, path: str) -> Any:
    """Return the file system that holds a path, by Spark's own settings."""
    context: Any = spark.sparkContext
    return hadoop_path(spark, path).getFileSystem(context._jsc.hadoopConfiguration())


def read_text(spark: SparkSession, path: str) -> str | None:
    """Return the text of a small file; None where there is none."""
    files, place = file_system(spark, path), hadoop_path(spark, path)
    if not files.exists(place):
        return None
    stream = files.open(place)
    try:
        return str(classes(spark).org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()
