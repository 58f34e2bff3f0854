"""The catalog that names the tables, and its properties in the file of `--catalog`."""

from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from cloud.errors import SinkError, StopError
from cloud.runtime import jvm
from cloud.sinks import Tables
from contract.files import PropertiesError, read_properties

CATALOG: Final = "oncegate"
"""The catalog's name in Spark."""
_PREFIX = f"spark.sql.catalog.{CATALOG}"


def connect(spark: SparkSession, tables: Tables) -> tuple[str, str]:
    """Give Spark the catalog; return the full names of table and quarantine.

    Raise StopError for an unusable file, SinkError where the catalog does not answer.
    """
    assert tables.connection is not None
    try:
        properties = read_properties(tables.connection)
    except PropertiesError as error:
        raise StopError(f"--catalog: {error}") from error
    # A cached table would be an old one where another program commits, or puts another in its place.
    for name, value in {**properties, "cache-enabled": "false"}.items():
        spark.conf.set(f"{_PREFIX}.{name}", value)
    spark.conf.set(_PREFIX, "org.apache.iceberg.spark.SparkCatalog")
    session: Any = spark
    try:  # otherwise Spark takes the names for those of its own catalog
        session._jsparkSession.sessionState().catalogManager().catalog(CATALOG)
    except jvm.FAILURES as error:
        raise SinkError(f"catalog of {tables.connection}: {jvm.cause(error)}") from error
    return f"{CATALOG}.{tables.table}", f"{CATALOG}.{tables.quarantine}"


def load(spark: SparkSession, name: str) -> Any:
    """Return Iceberg's own `Table`, with its present metadata.

    Raise StopError where there is none, SinkError where the catalog does not answer.
    """
    session: Any = spark
    try:
        return jvm.java_class(spark, "org.apache.iceberg.spark.Spark3Util").loadIcebergTable(
            session._jsparkSession, name
        )
    except jvm.FAILURES as error:
        kind = StopError if isinstance(error, AnalysisException) else SinkError
        raise kind(f"table {name}: cannot be loaded: {jvm.cause(error)}") from error


def frames(spark: SparkSession, tables: Tables) -> tuple[DataFrame, DataFrame]:
    """Return the present rows of table and quarantine."""
    table, quarantine = connect(spark, tables)
    return spark.table(table), spark.table(quarantine)


def identify(spark: SparkSession, tables: Tables) -> str:
    """Return the id by which receipts name the table."""
    return str(load(spark, connect(spark, tables)[0]).uuid())
