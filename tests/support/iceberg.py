"""Iceberg tables in a folder, which PyIceberg reads: a reader that shares no code with the one of Spark.

python -m tests.support.iceberg METADATA    # prints the rows of a table, pickled
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.older_spark import installed

ROOT = Path(__file__).resolve().parents[2]
PYICEBERG = "0.11.1"


@dataclass(frozen=True, slots=True)
class Iceberg:
    """A catalog of Hadoop's kind."""

    folder: Path

    def write_catalog(self) -> Path:
        """Write the file of `--catalog`."""
        file = self.folder / "catalog"
        file.write_text(f"type=hadoop\nwarehouse=file://{self.folder}/warehouse\n")
        file.chmod(0o600)
        return file

    def metadata(self, table: str) -> Path | None:
        """Return the file with the present metadata of a table such as `db.events`, None where there is none."""
        folder = self.folder / "warehouse" / table.replace(".", "/") / "metadata"
        found = sorted(folder.glob("v*.metadata.json"), key=lambda file: int(file.name[1:].partition(".")[0]))
        return found[-1] if found else None

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return the rows of a table; none where there is no table."""
        file = self.metadata(table)
        if file is None:
            return []
        path = os.pathsep.join((str(ROOT), str(installed("pyiceberg[pyarrow]", PYICEBERG))))
        command = (sys.executable, "-m", __name__, str(file))
        done = subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": path})
        found: list[dict[str, Any]] = pickle.loads(done.stdout)
        return found


def main(file: str) -> None:
    """Write the rows to standard output."""
    from pyiceberg.table import StaticTable  # type: ignore[import-not-found]  # in the folder that `rows` names

    rows = StaticTable.from_metadata(f"file://{file}").scan().to_arrow().to_pylist()
    sys.stdout.buffer.write(pickle.dumps(rows))


if __name__ == "__main__":
    main(sys.argv[1])
