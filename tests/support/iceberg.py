"""Iceberg tables in a folder or in S3, of catalogs of three kinds, which PyIceberg reads: no code of Spark's reader.

python -m tests.support.iceberg METADATA PROPERTIES    # prints the rows of a table, pickled
"""

import json
import os
import pickle
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from simulators.services import ports
from simulators.services.install import jars, java
from simulators.services.postgres import Postgres
from simulators.services.process import Command, Process
from simulators.services.service import ProcessService
from tests.support import older_spark
from tests.support.older_spark import installed
from tests.support.s3 import S3

ROOT = Path(__file__).resolve().parents[2]
PYICEBERG = "0.11.1"
HADOOP, JDBC, REST = "hadoop", "jdbc", "rest"
"""The kinds of catalogs, as `type` names them."""
JDBC_ON_S3 = "jdbc-on-s3"
"""A catalog in PostgreSQL with its tables in S3."""
CATALOG_VARIABLE = "ONCEGATE_TEST_CATALOG"
"""The variable that chooses one of the four for the tests of tests/cloud."""
START_SECONDS_MAX = 120.0


def warehouse(folder: Path) -> str:
    return f"file://{folder}/warehouse"


def jdbc(server: Postgres) -> dict[str, str]:
    """Return the properties of a catalog in PostgreSQL."""
    said = conninfo_to_dict(server.connection)
    address = f"jdbc:postgresql://{said['host']}:{said['port']}/{said['dbname']}"
    return {"uri": address, "jdbc.user": str(said["user"]), "jdbc.password": str(said["password"])}


class RestCatalog(ProcessService):
    """The REST catalog of Iceberg's own tests on a free port, which has the names of tables in PostgreSQL."""

    def __init__(self, folder: Path, server: Postgres) -> None:
        (self._port,) = ports.free(1)
        jars_ = [*jars.paths(jars.REST_CATALOG), *jars.paths(jars.JDBC)]
        jars_ += (older_spark.home() / "jars").glob("hadoop-client-*.jar")
        classpath = ":".join(map(str, jars_))
        main = "org.apache.iceberg.rest.RESTCatalogServer"
        command = (str(java.require()), "-Xmx256m", "-XX:+UseSerialGC", "-cp", classpath, main)
        given = {"catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog", "rest.port": str(self._port)}
        settings = {**given, "warehouse": warehouse(folder), **jdbc(server)}
        environment = {f"CATALOG_{_variable(name)}": value for name, value in settings.items()}
        self.process = Process(Command("rest catalog", command, folder / "rest.log", folder, environment))

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start the server and return once it accepts connections."""
        self.process.start()
        self.process.wait_for_port(self._port, START_SECONDS_MAX)


def _variable(name: str) -> str:
    return name.replace("-", "__").replace(".", "_").upper()


@dataclass(frozen=True, slots=True)
class Iceberg:
    """A catalog of a kind with tables in a folder."""

    folder: Path
    kind: str = HADOOP
    server: Postgres | None = None
    """Where the catalogs JDBC and REST have the names of tables."""
    rest: RestCatalog | None = None
    s3: S3 | None = None
    """Where the tables are, instead of the folder."""

    def write_catalog(self) -> Path:
        file = self.folder / "catalog"
        lines = {"type": self.kind, "warehouse": self.s3.uri("warehouse") if self.s3 else warehouse(self.folder)}
        if self.server is not None:
            lines |= jdbc(self.server)
        if self.rest is not None:
            lines = {"type": self.kind, "uri": self.rest.uri}
        file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        file.chmod(0o600)
        return file

    def metadata(self, table: str) -> Path | None:
        """Return the file with the present metadata of a table such as `db.events`, None where there is none."""
        address = self._metadata(table)
        if address is None:
            return None
        return Path(address.removeprefix("file:")) if self.s3 is None else self.s3.file(address)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return the rows of a table; none where there is no table."""
        address = self._metadata(table)
        if address is None:
            return []
        properties = {} if self.s3 is None else self.s3.iceberg_options()
        path = os.pathsep.join((str(ROOT), str(installed("pyiceberg[pyarrow]", PYICEBERG))))
        command = (sys.executable, "-m", __name__, address, json.dumps(properties))
        done = subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": path})
        found: list[dict[str, Any]] = pickle.loads(done.stdout)
        return found

    def _metadata(self, table: str) -> str | None:
        if self.server is not None:
            namespace, _, name = table.rpartition(".")
            query = "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = %s AND table_name = %s"
            with psycopg.connect(self.server.connection) as connection:
                place = connection.execute(query, (namespace, name)).fetchone()
            return None if place is None else str(place[0])
        folder = self.folder / "warehouse" / table.replace(".", "/") / "metadata"
        found = sorted(folder.glob("v*.metadata.json"), key=lambda file: int(file.name[1:].partition(".")[0]))
        return f"file://{found[-1]}" if found else None


def main(address: str, properties: str) -> None:
    """Write the rows to standard output."""
    from pyiceberg.table import StaticTable  # type: ignore[import-not-found]  # in the folder that `rows` names

    rows = StaticTable.from_metadata(address, json.loads(properties)).scan().to_arrow().to_pylist()
    sys.stdout.buffer.write(pickle.dumps(rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
