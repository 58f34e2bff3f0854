"""One Spark session for the transforms, one real broker for the whole path."""

import gc
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyspark
import pytest
from pyspark.sql import SparkSession

from cloud import sinks
from cloud.iceberg import catalog
from cloud.jars import ivy
from cloud.jars.coordinates import name_for
from cloud.session import SETTINGS, set_parquet
from simulators.services.install import jars
from simulators.services.kafka.broker import Broker
from simulators.services.postgres import Postgres
from tests.cloud.gateway import Gateway
from tests.cloud.plain_consumer.consuming import ConsumerSide
from tests.cloud.running import DELTA, DELTA_ON_S3, ICEBERG, PARTITIONS, POSTGRES, CloudSide
from tests.cloud.tables import SinkSide
from tests.support.iceberg import CATALOG_VARIABLE, HADOOP, JDBC, JDBC_ON_S3, REST, Iceberg, RestCatalog
from tests.support.s3 import S3

TEST_SECONDS_MAX = 900
"""Several jobs, each with a Spark of its own, and batches that may take a minute each on a busy machine."""
_FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Raise the time limit of this folder's tests, and ignore the sockets that py4j leaves to the garbage collector."""
    for item in items:
        if _FOLDER not in item.path.parents:
            continue
        item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
        if item.get_closest_marker("heavy") is None:
            item.add_marker(pytest.mark.timeout(TEST_SECONDS_MAX))


HAS_ICEBERG = pyspark.__version__.startswith("4.1.")
"""In the process that test_older_spark.py starts."""
_OF_ICEBERG = (jars.ICEBERG,) if HAS_ICEBERG else ()
_OF_S3 = (jars.S3A,) if os.environ.get(CATALOG_VARIABLE) == JDBC_ON_S3 else ()
_JAR_SETS = [
    *(name_for(of, ivy.pyspark_folder()) for of in (jars.SPARK, *_OF_ICEBERG, *_OF_S3)),
    *(_OF_ICEBERG and (jars.JDBC,)),
]
_SINKS = (POSTGRES, ICEBERG) if HAS_ICEBERG else (POSTGRES,)


@pytest.fixture
def gateway() -> Gateway:
    return Gateway()


@pytest.fixture(scope="package")
def spark() -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable  # else the system's, without our packages
    builder = SparkSession.builder.master("local[2]").appName("tests")
    settings = {
        **SETTINGS,
        "spark.jars": ",".join(str(jar) for of in _JAR_SETS for jar in jars.paths(of)),
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("JDK_JAVA_OPTIONS", raising=False)  # this session lives long enough for the second compiler
        session = builder.getOrCreate()
    set_parquet(session)
    yield session
    session.stop()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="package")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    with Postgres(tmp_path_factory.mktemp("postgres")) as running:
        yield running


@pytest.fixture(scope="package")
def iceberg(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Iceberg]:
    """Yield the catalog of a session, which keeps to the first that it is given."""
    folder, kind = tmp_path_factory.mktemp("iceberg"), os.environ.get(CATALOG_VARIABLE, HADOOP)
    server: Any = None if kind == HADOOP else request.getfixturevalue("postgres")
    s3: S3 | None = request.getfixturevalue("s3") if kind == JDBC_ON_S3 else None
    for name, value in s3.spark_settings().items() if s3 else ():
        spark.conf.set(name.removeprefix("spark.hadoop."), value)  # of a session that is there
    with RestCatalog(folder, server) if kind == REST else nullcontext() as rest:
        made = Iceberg(folder, JDBC if s3 else kind, server, rest, s3)
        catalog.connect(spark, sinks.Tables(sinks.ICEBERG, "db.events", "db.unfit", made.write_catalog()))
        yield made


@pytest.fixture(scope="package")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with S3(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture
def cloud(broker: Broker, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[CloudSide]:
    """Yield a new topic and a new table, in Delta unless the test requests another sink; end all jobs."""
    topic = f"events.{uuid4().hex}"
    broker.create_topics(topic, partitions=PARTITIONS)
    side = CloudSide(broker.bootstrap_servers, topic, tmp_path)
    sink = getattr(request, "param", DELTA)
    if sink == POSTGRES:
        side.postgres = request.getfixturevalue("postgres")
    if sink == ICEBERG:
        side.iceberg = Iceberg(tmp_path)
    if sink == DELTA_ON_S3:
        side.s3 = request.getfixturevalue("s3")
    yield side
    side.close()


@pytest.fixture
def side(broker: Broker, postgres: Postgres, tmp_path: Path) -> Iterator[ConsumerSide]:
    """Yield a new topic, table and group; end all members."""
    made = ConsumerSide(broker, postgres, tmp_path, f"c{uuid4().hex}")
    yield made
    for member in made.members:
        member.kill()


@pytest.fixture(params=[DELTA, *(pytest.param(sink, marks=pytest.mark.heavy) for sink in _SINKS)])
def sink_side(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> SinkSide:
    postgres = request.getfixturevalue("postgres") if request.param == POSTGRES else None
    iceberg = request.getfixturevalue("iceberg") if request.param == ICEBERG else None
    return SinkSide(spark, tmp_path, postgres, f"t{uuid4().hex}", iceberg=iceberg)
