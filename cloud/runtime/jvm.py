"""Access to the JVM of Spark, for what PySpark does not offer."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, reduce
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from cloud import errors

FAILURES = (PySparkException, Py4JJavaError)
"""The exceptions that a failed call of Spark raises, from Python or from the JVM."""
_RAISED = re.compile(rf"^{re.escape(errors.__name__)}\.(\w+): (.+)$", re.MULTILINE)
"""The end of a traceback from an executor, which Spark passes on as text."""
_GLOB = re.compile(r"[\\{}\[\]*?]")
"""What Hadoop takes for a pattern in a path."""


@contextmanager
def errors_of_executors() -> Iterator[None]:
    """Raise the job's own error where an executor has raised one and Spark fails by it."""
    try:
        yield
    except FAILURES as failure:
        if not (found := _RAISED.search(str(failure))):
            raise
        error: errors.JobError = getattr(errors, found[1])(found[2])
        raise error from failure


def cause(error: Exception) -> str:
    """Return the line of an error that says what is wrong."""
    told = str(error).strip().splitlines() or [type(error).__name__]
    return next((line for line in told if "[" in line or line.startswith(": ")), told[0]).removeprefix(": ")


def java_class(spark: SparkSession, name: str) -> Any:
    """Return a class of the JVM by its full name.

    It is looked up once: py4j requests every part of the name, and for each of them the JVM searches all jars.
    """
    gateway: Any = spark.sparkContext
    return _class(gateway._jvm, name)


@cache
def _class(view: Any, name: str) -> Any:
    return reduce(getattr, name.split("."), view)


def set_log_level(spark: SparkSession, logger: str, level: str) -> None:
    """Set the level of one of the JVM's loggers."""
    levels = java_class(spark, "org.apache.logging.log4j.Level")
    java_class(spark, "org.apache.logging.log4j.core.config.Configurator").setLevel(logger, levels.valueOf(level))


def hadoop_path(spark: SparkSession, path: str) -> Any:
    """Return a Hadoop `Path`."""
    return java_class(spark, "org.apache.hadoop.fs.Path")(path)


def qualify(spark: SparkSession, path: str) -> str:
    """Return a path with its scheme; parts of Spark resolve a relative path differently.

    Not as a URI, in which a space is encoded: Hadoop, Spark and Delta decode no path, and would take another folder.
    """
    return str(file_system(spark, path).makeQualified(hadoop_path(spark, path)).toString())


def literal(path: str) -> str:
    """Return a path in which Spark finds no pattern."""
    return _GLOB.sub(r"\\\g<0>", path)


def quoted(name: str) -> str:
    """Return a name as a statement has it, whatever is in it."""
    return f"`{name.replace('`', '``')}`"


def file_system(spark: SparkSession, path: str) -> Any:
    """Return the Hadoop file system of a path, with Spark's settings."""
    context: Any = spark.sparkContext
    return hadoop_path(spark, path).getFileSystem(context._jsc.hadoopConfiguration())


def default_scheme(spark: SparkSession) -> str:
    """Return the scheme of the file system of paths that name none (`fs.defaultFS`)."""
    context: Any = spark.sparkContext
    files = java_class(spark, "org.apache.hadoop.fs.FileSystem")
    return str(files.getDefaultUri(context._jsc.hadoopConfiguration()).getScheme())


def exists(spark: SparkSession, path: str) -> bool:
    """Whether there is a file or a folder."""
    return bool(file_system(spark, path).exists(hadoop_path(spark, path)))


def read_text(spark: SparkSession, path: str) -> str | None:
    """Return the text of a small file; None where it does not exist."""
    if not exists(spark, path):
        return None
    stream = file_system(spark, path).open(hadoop_path(spark, path))
    try:
        return str(java_class(spark, "org.apache.commons.io.IOUtils").toString(stream, "UTF-8"))
    finally:
        stream.close()


def release(checkpointed: DataFrame) -> None:
    """Free what a frame of `localCheckpoint` holds, which else stays until the garbage collector comes to it."""
    frame: Any = checkpointed
    frame._jdf.queryExecution().analyzed().rdd().unpersist(False)


def local(small: DataFrame) -> DataFrame:
    """Return a frame with the rows in its plan: no batch needs a job of Spark's own for them."""
    frame: Any = small
    session: Any = small.sparkSession
    made = session._jsparkSession.createDataFrame(frame._jdf.collectAsList(), frame._jdf.schema())
    return DataFrame(made, small.sparkSession)


def only_adds_columns(made: DataFrame, given: DataFrame) -> bool:
    """Whether a frame follows from another by projections that pass its columns on: then it has the same rows.

    Not by those with a subquery, which Spark executes as a join. A column that is passed on is equal, with its id: what
    is computed, be it the same under another name, is no attribute in a projection's list.
    """
    known: tuple[Any, Any] = made, given
    node, source = (frame._jdf.queryExecution().analyzed() for frame in known)
    columns = source.output()
    while not node.equals(source):
        is_projection = node.getClass().getName() == "org.apache.spark.sql.catalyst.plans.logical.Project"
        if not is_projection or not node.subqueries().isEmpty() or not columns.diff(node.projectList()).isEmpty():
            return False
        node = node.child()
    return True


def delta_log(spark: SparkSession, path: str) -> Any:
    """Return Delta's `DeltaLog` of a table, with the snapshot of the session's last read or commit."""
    session: Any = spark
    return java_class(spark, "org.apache.spark.sql.delta.DeltaLog").forTable(
        session._jsparkSession, hadoop_path(spark, path)
    )
